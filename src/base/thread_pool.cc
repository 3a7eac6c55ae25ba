// SPDX-License-Identifier: MIT
#include "base/thread_pool.h"

#include <sched.h>

#include "base/check.h"

namespace deepinfer {
namespace {
constexpr int kSpins = 4000;  // about 10 us: longer than the gap between the ops of one step
thread_local bool in_parallel_loop = false;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

int num_usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

ThreadPool::ThreadPool(int num_threads) {
  CHECK(num_threads >= 0);
  const int total = num_threads == 0 ? num_usable_cpus() : num_threads;
  for (int i = 1; i < total; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t num_items, Function function, const void* context) {
  if (num_items <= 0) return;
  if (workers_.empty() || num_items == 1 || in_parallel_loop) {
    for (int64_t i = 0; i < num_items; ++i) function(context, i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    function_ = function;
    context_ = context;
    num_items_ = num_items;
    next_item_.store(0, std::memory_order_relaxed);
    num_busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  in_parallel_loop = true;
  for (int64_t i; (i = next_item_.fetch_add(1, std::memory_order_relaxed)) < num_items_;) function_(context_, i);
  in_parallel_loop = false;
  // Every worker reports in, so none can still hold this loop's context when the next one is published.
  for (int spins = 0; num_busy_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) pause_cpu();
    else std::this_thread::yield();
  }
}

void ThreadPool::work() {
  in_parallel_loop = true;
  uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && generation_.load(std::memory_order_acquire) == seen && !stopping_; ++spins)
      pause_cpu();
    if (generation_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || generation_.load(std::memory_order_acquire) != seen; });
    }
    if (generation_.load(std::memory_order_acquire) == seen) return;  // stopping
    seen = generation_.load(std::memory_order_acquire);
    for (int64_t i; (i = next_item_.fetch_add(1, std::memory_order_relaxed)) < num_items_;) function_(context_, i);
    num_busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace deepinfer
