// SPDX-License-Identifier: MIT
// The threads that make masks, so that no step waits for a grammar that takes long. Jobs are cut into short pieces that
// take turns: a long one holds up neither the others nor the loop. Thread: the loop's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "serve/work_queue.h"

namespace deepinfer {

class MaskWorkers {
 public:
  explicit MaskWorkers(int num_threads);

  // `piece` is called again and again, by one thread at a time, until it says that it is done.
  void start(std::function<bool()> piece);
  // Until `holds`, which is asked when a job is done, but not for longer than that. What it says.
  bool wait(int64_t wait_ns, const std::function<bool()>& holds);

 private:
  void run(std::function<bool()> piece);

  std::mutex mutex_;
  std::condition_variable done_;
  WorkQueue queue_;  // last: its threads use what stands above
};

}  // namespace deepinfer
