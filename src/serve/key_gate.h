// SPDX-License-Identifier: MIT
// Keeps each key to its limits: requests and tokens a minute (token buckets that hold one minute), requests at once.
// Thread: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "protocol/request_error.h"
#include "serve/api_keys.h"

namespace deepinfer {

class KeyGate {
 public:
  // Counts a request in. Refusal: 429 with the limit's name and the seconds to wait.
  Refusal enter(const ApiKey& key, int64_t now_ns);
  // The request has ended; its tokens are charged, if need be against the minutes to come.
  void leave(const ApiKey& key, int64_t num_tokens);

 private:
  struct Usage {
    double requests = 0, tokens = 0;  // left in the buckets
    int64_t filled_ns = -1;
    int64_t num_running = 0;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, Usage> usages_;  // by name; as many as there are keys
};

}  // namespace deepinfer
