// SPDX-License-Identifier: MIT
// Where a store's devices are, as the command line says it: directories, shard servers or RADOS pools; and the code
// that their number allows: one device plain, twelve or more 10 + 2. Thread: one caller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/frame_client.h"
#include "store/block_store.h"

namespace deepinfer {

struct StoreTarget {
  std::string paths;   // DIR[,DIR...]
  std::string shards;  // HOST:PORT[,HOST:PORT...]
  std::string rados;   // CONF:POOLPREFIX: pools POOLPREFIX0, POOLPREFIX1, ...
  std::string etcd;    // HOST:PORT[/STORE]: the shard servers that registered themselves there (members.h)
  FrameSecurity security;
  bool direct = true, io_uring = true, durable = false;
};

// The drivers, by the field that names their devices.
struct StoreDriver {
  const char* name;
  std::string StoreTarget::*place;
  Result<std::vector<std::unique_ptr<ShardDevice>>> (*open)(const StoreTarget& target, FrameLoop& loop,
                                                            const Clock& clock);
};
std::vector<StoreDriver> store_drivers();

// Errors: invalid_argument (none or several drivers named, an address of another form), or the driver's.
Result<std::vector<std::unique_ptr<ShardDevice>>> open_devices(const StoreTarget& target, FrameLoop& loop,
                                                               const Clock& clock);
// 1 + 0 or 10 + 2. Errors: invalid_argument for other numbers.
Status choose_code(size_t num_devices, StoreOptions& options);
Result<std::unique_ptr<BlockStore>> open_store(const StoreTarget& target, StoreOptions options, FrameLoop& loop,
                                               const Clock& clock);

bool is_named(const StoreTarget& target);  // whether any driver's field is set
// Errors: invalid_argument (some of the three TLS files are named and some not).
Status check_shard_tls(const FrameSecurity& security);
// --secret, or --store-secret: "" gives "". Errors: the file's; invalid_argument (nothing in it).
Result<std::string> read_shard_secret(const std::string& path);
std::vector<std::string> split_list(const std::string& text);  // at commas; empty items are dropped

}  // namespace deepinfer
