// SPDX-License-Identifier: MIT
// A fixed pool for data-parallel loops. The partition of work into items never depends on the number of threads, so
// results are the same for any pool size. Workers spin briefly, then sleep. Thread: one caller at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace deepinfer {

class ThreadPool {
 public:
  // num_threads counts the caller: 1 means no workers. 0 means one per CPU the process may run on.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for each i in [0, num_items), in any order and on any thread; returns when all are done.
  // Nested calls run inline on the calling worker.
  template <typename Body>
  void parallel_for(int64_t num_items, const Body& body) {
    run(
        num_items, [](const void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, &body);
  }

 private:
  using Function = void (*)(const void* context, int64_t i);
  void run(int64_t num_items, Function function, const void* context);
  void work();

  std::vector<std::thread> workers_;
  std::mutex mutex_;  // guards sleeping and the publication of a loop
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> num_busy_{0};
  std::atomic<bool> stopping_{false};
  Function function_ = nullptr;
  const void* context_ = nullptr;
  int64_t num_items_ = 0;
  std::atomic<int64_t> next_item_{0};
};

int num_usable_cpus();

}  // namespace deepinfer
