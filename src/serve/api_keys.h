// SPDX-License-Identifier: MIT
// Who may use the service. The file holds digests, never keys:
//   {"keys": [{"name": "alice", "sha256": "<64 hex digits of SHA-256 of the key>", "admin": false,
//              "requests_per_minute": 60, "tokens_per_minute": 100000, "concurrency": 8, "context_tokens": 32768}]}
// Limits are optional; 0 or absent = none. Immutable after loading; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"

namespace deepinfer {

struct ApiKey {
  std::string name;
  Sha256Digest digest{};
  bool is_admin = false;
  bool may_pin = false;  // prompts in the store, beyond their time
  int64_t requests_per_minute = 0, tokens_per_minute = 0, concurrency = 0, context_tokens = 0;
};

// The time taken depends on the lengths alone.
bool equals_in_constant_time(std::string_view presented, std::string_view expected);

class ApiKeys {
 public:
  ApiKeys() = default;  // no keys: everybody is let in as ""
  // Errors: not_found, invalid_argument (which key, which member).
  static Result<ApiKeys> load(const std::string& path);
  static Result<ApiKeys> parse(std::string_view json);

  void add(ApiKey key) { keys_.push_back(std::move(key)); }
  bool empty() const { return keys_.empty(); }
  // The key presented; nullptr when it is none of ours. The time taken does not depend on how much of it is right.
  const ApiKey* find(std::string_view presented) const;

 private:
  std::vector<ApiKey> keys_;
};

}  // namespace deepinfer
