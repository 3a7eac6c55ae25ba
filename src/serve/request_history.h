// SPDX-License-Identifier: MIT
// Generations under way and the last that ended, for the console's timeline. Bounded. Thread: any.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "base/json.h"
#include "serve/request_record.h"

namespace deepinfer {

class RequestHistory {
 public:
  explicit RequestHistory(size_t ended_max) : ended_max_(ended_max) {}
  void begin(const RequestRecord& record);
  void end(const RequestRecord& record);
  // Newest first, those of `owner` alone unless `sees_all`. Times are milliseconds since the request came; what has not
  // happened is null.
  Json list(const std::string& owner, bool sees_all, int64_t now_ns) const;

 private:
  const size_t ended_max_;
  mutable std::mutex mutex_;                      // guards what stands below
  std::map<std::string, RequestRecord> running_;  // by span id: request ids are the client's and may repeat
  std::deque<RequestRecord> ended_;               // newest first
};

}  // namespace deepinfer
