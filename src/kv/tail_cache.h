// SPDX-License-Identifier: MIT
// Layer two of the hit policy: the window state of the encoder layers at the ends of blocks. A prompt whose hit ends
// where a tail is known goes on there; without one it runs the window before the hit again (scheduler/replay_plan.h).
// Keeps the bytes in host memory, least recently used go first; what is in them is the engine's business
// (engine/lane_record.h). Thread: plan.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "store/block_key.h"

namespace deepinfer {

// A tail record. Shared with steps and stores that read it.
using TailBytes = std::shared_ptr<const std::vector<uint8_t>>;

struct Tail {
  TailBytes bytes;
  bool behind_fast_replay = false;  // its rows were computed behind a fast replay: exact requests must not use it
};

struct FoundTail {
  Tail tail;
  int64_t num_blocks = 0;  // of the chain, at whose end it stands
};

struct TailCacheStats {
  int64_t num_puts = 0, num_hits = 0, num_evicted = 0;
};

class TailCache {
 public:
  explicit TailCache(int64_t bytes_max) : bytes_max_(bytes_max) {}

  bool is_on() const { return bytes_max_ > 0; }
  // `key` is of the block at whose end it stands. A key that is here already keeps what it has, unless that is behind a
  // fast replay and this is not. False when nothing was taken.
  bool put(const BlockKey& key, Tail tail);
  // The last one at the ends of blocks (num_blocks_min, num_blocks_max] of the chain. Makes it the most recently used.
  std::optional<FoundTail> find(std::span<const BlockKey> keys, int64_t num_blocks_min, int64_t num_blocks_max,
                                bool exact_only);
  bool contains(const BlockKey& key, bool exact_only) const;
  const Tail* look(const BlockKey& key) const;  // null when it is not here; neither a hit nor a use
  bool forget(const BlockKey& key);

  int64_t num_tails() const { return static_cast<int64_t>(entries_.size()); }
  int64_t num_bytes() const { return num_bytes_; }
  const TailCacheStats& stats() const { return stats_; }
  void check_invariants() const;

 private:
  struct Entry {
    Tail tail;
    std::list<BlockKey>::iterator lru_place;
  };
  void drop(std::unordered_map<BlockKey, Entry, BlockKeyHash>::iterator at);

  int64_t bytes_max_ = 0, num_bytes_ = 0;
  std::list<BlockKey> lru_;  // front = next to go
  std::unordered_map<BlockKey, Entry, BlockKeyHash> entries_;
  TailCacheStats stats_;
};

}  // namespace deepinfer
