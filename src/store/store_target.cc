// SPDX-License-Identifier: MIT
#include "store/store_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "store/driver_dir.h"
#include "store/driver_rados.h"
#include "store/driver_shard.h"

namespace deepinfer {
namespace {

using Devices = std::vector<std::unique_ptr<ShardDevice>>;

Result<Devices> open_dirs(const StoreTarget& target, FrameLoop&) {
  Devices devices;
  for (const std::string& path : split_list(target.paths)) {
    ASSIGN_OR_RETURN(
        auto device,
        open_dir({.path = path, .direct = target.direct, .io_uring = target.io_uring, .durable = target.durable}));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<Devices> open_shards(const StoreTarget& target, FrameLoop& loop) {
  Devices devices;
  for (const std::string& address : split_list(target.shards)) {
    ASSIGN_OR_RETURN(ShardOptions options, parse_shard_address(address));
    options.security = target.security;
    ASSIGN_OR_RETURN(auto device, open_shard(loop, options));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<Devices> open_pools(const StoreTarget& target, FrameLoop&) { return open_rados(target.rados); }

}  // namespace

std::vector<StoreDriver> store_drivers() {
  return {{"dir", &StoreTarget::paths, open_dirs},
          {"shard", &StoreTarget::shards, open_shards},
          {"rados", &StoreTarget::rados, open_pools}};
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

Result<Devices> open_devices(const StoreTarget& target, FrameLoop& loop) {
  const StoreDriver* chosen = nullptr;
  const auto drivers = store_drivers();
  for (const StoreDriver& driver : drivers) {
    if ((target.*driver.place).empty()) continue;
    if (chosen) return invalid_argument("expected one of --path, --shards and --rados, found several");
    chosen = &driver;
  }
  if (!chosen)
    return invalid_argument("expected --path DIR[,DIR...], --shards HOST:PORT,... or --rados CONF:POOLPREFIX");
  return chosen->open(target, loop);
}

Status choose_code(size_t num_devices, StoreOptions& options) {
  if (num_devices != 1 && num_devices < 12)
    return invalid_argument(
        fmt::format("expected 1 device (no coding) or at least 12 (10 + 2 coding), found {}", num_devices));
  options.num_data_shards = num_devices == 1 ? 1 : 10;
  options.num_parity_shards = num_devices == 1 ? 0 : 2;
  return {};
}

Result<std::unique_ptr<BlockStore>> open_store(const StoreTarget& target, StoreOptions options, FrameLoop& loop,
                                               const Clock& clock) {
  ASSIGN_OR_RETURN(Devices devices, open_devices(target, loop));
  TRY(choose_code(devices.size(), options));
  return BlockStore::open(options, std::move(devices), clock);
}

}  // namespace deepinfer
