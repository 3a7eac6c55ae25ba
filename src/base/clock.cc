// SPDX-License-Identifier: MIT
#include "base/clock.h"

#include <time.h>

#include <chrono>

namespace deepinfer {
namespace {
template <typename C>
int64_t ns_since_epoch() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(C::now().time_since_epoch()).count();
}
}  // namespace

int64_t SystemClock::monotonic_ns() const { return ns_since_epoch<std::chrono::steady_clock>(); }
int64_t SystemClock::unix_ns() const { return ns_since_epoch<std::chrono::system_clock>(); }

int64_t thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace deepinfer
