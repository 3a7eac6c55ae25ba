// SPDX-License-Identifier: MIT
// Time is a parameter: production passes `SystemClock`, tests and the simulator a `ManualClock`.
#pragma once

#include <cstdint>

namespace deepinfer {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t monotonic_ns() const = 0;  // never goes back
  virtual int64_t unix_ns() const = 0;       // wall time since 1970-01-01 UTC
};

class SystemClock final : public Clock {
 public:
  int64_t monotonic_ns() const override;
  int64_t unix_ns() const override;
};

// CPU time of the calling thread, for measurements that other load must not disturb.
int64_t thread_cpu_ns();

class ManualClock final : public Clock {
 public:
  explicit ManualClock(int64_t unix_start_ns = 0) : unix_start_ns_(unix_start_ns) {}
  int64_t monotonic_ns() const override { return now_ns_; }
  int64_t unix_ns() const override { return unix_start_ns_ + now_ns_; }
  void advance_ns(int64_t ns) { now_ns_ += ns; }

 private:
  int64_t unix_start_ns_;
  int64_t now_ns_ = 0;
};

}  // namespace deepinfer
