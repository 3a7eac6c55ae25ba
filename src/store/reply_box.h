// SPDX-License-Identifier: MIT
// Where the replies of many device operations arrive, for the one caller that waits for them. Shared with the
// callbacks, because the last reply may come long after the caller has what it wanted and has gone. Thread: any puts,
// one takes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "store/driver.h"

namespace deepinfer {

struct ArrivedReply {
  size_t number = 0;  // which of the caller's extents
  int shard = 0;
  DeviceReply reply;
};

class ReplyBox {
 public:
  void put(ArrivedReply reply) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;  // its buffer goes back
      replies_.push_back(std::move(reply));
    }
    arrived_.notify_one();
  }
  // All that are there; waits at most so long for the first.
  std::vector<ArrivedReply> take(int64_t wait_ns) {
    std::unique_lock lock(mutex_);
    if (replies_.empty() && wait_ns > 0)
      arrived_.wait_for(lock, std::chrono::nanoseconds(wait_ns), [this] { return !replies_.empty(); });
    return std::exchange(replies_, {});
  }
  // From here on replies are dropped.
  void close() {
    std::vector<ArrivedReply> late;
    const std::lock_guard lock(mutex_);
    closed_ = true;
    late.swap(replies_);
  }

 private:
  std::mutex mutex_;  // guards both
  std::condition_variable arrived_;
  std::vector<ArrivedReply> replies_;
  bool closed_ = false;
};

}  // namespace deepinfer
