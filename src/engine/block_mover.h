// SPDX-License-Identifier: MIT
// The bytes of the host-memory tier, and the thread that copies between them and the engine's blocks while steps run.
// Copies are done in the order given; the caller sees to it that no step writes a block that a copy still reads or
// reads one that a copy still writes (kv/prefix_cache.h says which wait for which). Thread: one caller.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "kv/prefix_cache.h"

namespace deepinfer {

struct BlockMoverStats {
  int64_t num_copies = 0, num_bytes = 0, busy_ns = 0;  // of the copying thread
};

class BlockMover {
 public:
  // `engine` outlives it. Without slots there is no thread, and no copy may be asked for.
  BlockMover(Engine& engine, int64_t num_slots);
  ~BlockMover();

  void start(std::span<const BlockCopy> copies);
  // What has been done since the last call, in order.
  std::vector<BlockCopy> take_finished();
  void wait_for_all();  // copies started so far
  void wait_for_any();  // returns at once when nothing is under way
  int64_t num_under_way() const;
  BlockMoverStats stats() const;

 private:
  void run();
  void copy(const BlockCopy& copy);

  Engine& engine_;
  int64_t block_bytes_;
  std::unique_ptr<uint8_t[]> host_;  // [slots][block_bytes]; touched as slots are used

  mutable std::mutex mutex_;  // guards what stands below
  std::condition_variable wake_, done_;
  std::deque<BlockCopy> waiting_;
  std::vector<BlockCopy> finished_;
  int64_t num_under_way_ = 0;
  BlockMoverStats stats_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace deepinfer
