// SPDX-License-Identifier: MIT
// A few threads for work that must not hold up an event thread: reading bodies, tokenising, images. Bounded: what does
// not fit is refused. Thread: any.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace deepinfer {

class WorkQueue {
 public:
  WorkQueue(int num_threads, size_t jobs_max);
  ~WorkQueue();                          // stop()
  bool push(std::function<void()> job);  // false: full or stopped
  void stop();                           // what has not begun is dropped

 private:
  void run();

  std::mutex mutex_;  // guards what stands below
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  const size_t jobs_max_;
  std::vector<std::thread> threads_;
};

}  // namespace deepinfer
