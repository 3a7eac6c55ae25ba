// SPDX-License-Identifier: MIT
// Keeps log lines from holding up who writes them: while a LogQueue lives, log_line() hands its lines over and a thread
// of the queue writes them. The reader of a pipe may have stopped, a disk may be full: what does not fit or cannot be
// written is lost and counted, and the next line that gets through is followed by one that says how many were lost.
// One at a time. Thread: any may log; making and ending it is one thread's.
#pragma once

#include <cstddef>
#include <memory>

namespace deepinfer {

class LogQueue {
 public:
  explicit LogQueue(int fd = 2, size_t bytes_max = size_t{1} << 20);
  ~LogQueue();   // what waits is written within a second, or lost
  void flush();  // until what was logged before is written; at most a second
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  struct State;

 private:
  std::shared_ptr<State> state_;  // the thread has its own: it may be stuck in a write when the queue ends
};

}  // namespace deepinfer
