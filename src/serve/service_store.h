// SPDX-License-Identifier: MIT
// The KV store of a service: `serve --store DIR`. Opens the devices and keeps each owner's secret salt beside them.
// Thread: any.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "store/block_store.h"
#include "store/store_target.h"
#include "store/tenants.h"

namespace deepinfer {

struct ServiceStoreOptions {
  StoreTarget target;
  std::string tenants_file;    // empty = tenants.json in the first directory
  std::string encryption_key;  // file; empty = blocks are not encrypted
  int64_t capacity_bytes = 0;  // 0 = as much as the disks hold
};

class ServiceStore {
 public:
  static Result<std::unique_ptr<ServiceStore>> open(const ServiceStoreOptions& options, const Clock& clock);

  BlockStore& blocks() { return *store_; }
  const BlockStore& blocks() const { return *store_; }
  // What goes into the keys instead of the owner's name, which others could guess. `user` parts the data of one owner.
  TenantSalt salt_of(const std::string& owner, const std::string& user);
  // All of an owner's data, of whatever `user`: from now on nobody finds it, and later misses say why. False when there
  // is none. Errors: unavailable (the salt could not be taken out of its file).
  Result<bool> forget(const std::string& owner);

 private:
  ServiceStore(StoreTenants tenants) : tenants_(std::move(tenants)) {}
  FrameLoop loop_;
  StoreTenants tenants_;
  std::unique_ptr<BlockStore> store_;  // its devices use the loop
};

// The store's figures as Prometheus text.
std::string store_metrics(const BlockStore& store);

}  // namespace deepinfer
