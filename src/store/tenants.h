// SPDX-License-Identifier: MIT
// A secret salt for every tenant, in one file that only its owner may read. The salt is part of every block key, so
// data of a tenant whose salt was deleted can be named by nobody any more (and, where blocks are encrypted, read by
// nobody); it leaves the disks with its lifetime. A tenant that comes back gets a new salt. Thread: any.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace deepinfer {

struct TenantSalt {
  std::string salt;          // 32 hex digits
  bool was_deleted = false;  // an earlier salt was: misses may be due to that
};

class StoreTenants {
 public:
  // A file that does not exist is made with the first tenant. Errors: corruption (damaged), invalid_argument (others
  // may read it).
  static Result<StoreTenants> open(const std::string& path);
  StoreTenants(StoreTenants&& other) noexcept : path_(std::move(other.path_)), tenants_(std::move(other.tenants_)) {}

  // Makes one on first use. Errors: unavailable (the file cannot be written).
  Result<TenantSalt> salt_of(const std::string& tenant);
  // The salt that is now gone; nullopt when the tenant had none.
  Result<std::optional<std::string>> drop(const std::string& tenant);
  std::vector<std::string> names() const;

 private:
  StoreTenants() = default;
  Status save() const;  // under mutex_
  std::string path_;
  mutable std::mutex mutex_;  // guards tenants_
  std::map<std::string, TenantSalt> tenants_;
};

}  // namespace deepinfer
