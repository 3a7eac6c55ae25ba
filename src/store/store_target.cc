// SPDX-License-Identifier: MIT
#include "store/store_target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "store/driver_dir.h"
#include "store/driver_rados.h"
#include "store/driver_shard.h"
#include "store/members.h"

namespace deepinfer {
namespace {

using Devices = std::vector<std::unique_ptr<ShardDevice>>;

Result<Devices> open_dirs(const StoreTarget& target, FrameLoop&, const Clock&) {
  Devices devices;
  for (const std::string& path : split_list(target.paths)) {
    ASSIGN_OR_RETURN(
        auto device,
        open_dir({.path = path, .direct = target.direct, .io_uring = target.io_uring, .durable = target.durable}));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<Devices> open_shards(const StoreTarget& target, FrameLoop& loop, const Clock&) {
  Devices devices;
  for (const std::string& address : split_list(target.shards)) {
    ASSIGN_OR_RETURN(ShardOptions options, parse_shard_address(address));
    options.security = target.security;
    ASSIGN_OR_RETURN(auto device, open_shard(loop, options));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<Devices> open_pools(const StoreTarget& target, FrameLoop&, const Clock&) { return open_rados(target.rados); }

Result<Devices> open_registered(const StoreTarget& target, FrameLoop& loop, const Clock& clock) {
  ASSIGN_OR_RETURN(const MemberPlace place, parse_member_place(target.etcd));
  ASSIGN_OR_RETURN(auto table, make_etcd_leases(place.address));
  char host[256] = {};
  (void)::gethostname(host, sizeof host - 1);
  return open_members(
      std::move(table),
      {.store = place.store, .owner = fmt::format("process {} of {}", ::getpid(), host), .security = target.security},
      loop, clock);
}

}  // namespace

std::vector<StoreDriver> store_drivers() {
  return {{"dir", &StoreTarget::paths, open_dirs},
          {"shard", &StoreTarget::shards, open_shards},
          {"rados", &StoreTarget::rados, open_pools},
          {"etcd", &StoreTarget::etcd, open_registered}};
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

bool is_named(const StoreTarget& target) {
  const auto drivers = store_drivers();
  return std::any_of(drivers.begin(), drivers.end(),
                     [&](const StoreDriver& driver) { return !(target.*driver.place).empty(); });
}

Status check_shard_tls(const FrameSecurity& security) {
  const int num_files = !security.tls_certificate.empty() + !security.tls_key.empty() + !security.tls_authority.empty();
  if (num_files == 0 || num_files == 3) return {};
  return invalid_argument("certificate, key and authority of shard servers go together: both sides show a certificate");
}

Result<std::string> read_shard_secret(const std::string& path) {
  std::string secret;
  if (path.empty()) return secret;
  ASSIGN_OR_RETURN(secret, read_file(path, 4096));
  while (secret.ends_with('\n')) secret.pop_back();
  if (secret.empty()) return invalid_argument(path + ": the secret is empty");
  return secret;
}

Result<Devices> open_devices(const StoreTarget& target, FrameLoop& loop, const Clock& clock) {
  const StoreDriver* chosen = nullptr;
  const auto drivers = store_drivers();
  for (const StoreDriver& driver : drivers) {
    if ((target.*driver.place).empty()) continue;
    if (chosen) return invalid_argument("expected one of --path, --shards, --etcd and --rados, found several");
    chosen = &driver;
  }
  if (!chosen)
    return invalid_argument(
        "expected --path DIR[,DIR...], --shards HOST:PORT,..., --etcd HOST:PORT[/STORE] or --rados CONF:POOLPREFIX");
  return chosen->open(target, loop, clock);
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
  for (const std::string& list : {target.paths, target.shards})  // before folders are made
    if (!list.empty()) TRY(choose_code(split_list(list).size(), options));
  ASSIGN_OR_RETURN(Devices devices, open_devices(target, loop, clock));
  TRY(choose_code(devices.size(), options));
  return BlockStore::open(options, std::move(devices), clock);
}

}  // namespace deepinfer
