// SPDX-License-Identifier: MIT
// The device's Block-KV blocks: who holds each, which are kept for reuse, and which goes next when room is needed.
//
// A block is in exactly one state:
//   free    nobody holds it and its bytes mean nothing
//   active  held by one or more sequences (reference count)
//   cached  held by nobody, but published under a key: a prefix hit may take it, eviction may drop it (least recently
//   used) pinned  cached, and kept until unpinned (host loads in flight, operator pins)
// Only full blocks are published. Freed blocks of a sequence enter the LRU from its end, so the tail of a conversation
// goes before its beginning. Knows sequences by their calls only, and no device pointer. Thread: plan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "kv/key_index.h"
#include "store/block_key.h"

namespace deepinfer {

struct CachedBlock {
  BlockId block{};
  bool behind_fast_replay = false;  // a row of it was computed behind a fast replay: exact requests must not use it
};

class BlockPool {
 public:
  // Called with every cached block that is dropped to make room, before its id is handed out again.
  using OnEvict = std::function<void(const BlockKey& key, const CachedBlock& block)>;

  explicit BlockPool(int64_t num_blocks, OnEvict on_evict = {});

  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_cached() const { return num_cached_; }
  int64_t num_evictable() const { return num_evictable_; }
  int64_t num_available() const { return num_free() + num_evictable(); }  // what allocate() can give now

  // n blocks with reference count 1 each, evicting least recently used cached blocks as needed; nullopt (and nothing
  // changed) when fewer than n are available.
  std::optional<std::vector<BlockId>> allocate(int64_t n);
  bool allocate(int64_t n, std::vector<BlockId>& blocks);  // the same, appended; false when too few are available
  void hold(BlockId block);                                // one more reference; takes a cached block out of the LRU
  void release(BlockId block);  // one reference less; the last one makes it cached (if published) or free

  // Offers a full, active block under `key`. A key that another block already has stays there: this block keeps no key.
  // A block computed exactly replaces one that was computed behind a fast replay and that nobody holds.
  void publish(BlockId block, const BlockKey& key, bool behind_fast_replay);
  std::optional<CachedBlock> find(const BlockKey& key) const;
  void pin(BlockId block);
  void unpin(BlockId block);
  // Drops a cached key; the block becomes free if nobody holds it. For a tenant's deletion.
  bool forget(const BlockKey& key);

  // Cached blocks in the order in which they would be evicted, until `visit` says false.
  void for_each_evictable(
      const std::function<bool(BlockId block, const BlockKey& key, bool behind_fast_replay)>& visit) const;

  int64_t num_references(BlockId block) const { return state(block).num_references; }

  // Every block in exactly one state, counts and index agree. Aborts otherwise. O(num_blocks); for tests and debug
  // runs.
  void check_invariants() const;

 private:
  struct State {
    int64_t num_references = 0;
    int64_t num_pins = 0;
    std::optional<BlockKey> key;
    bool behind_fast_replay = false;
    bool is_in_lru = false;
    int32_t before = -1, behind = -1;  // neighbours in the LRU
  };
  State& state(BlockId block);
  const State& state(BlockId block) const;
  void park(BlockId block);  // nobody holds it any more: LRU or free
  void unkey(BlockId block);
  void enter_lru(BlockId block);
  void leave_lru(BlockId block);
  BlockId evict_one();

  std::vector<State> blocks_;
  std::vector<BlockId> free_;
  int32_t lru_front_ = -1, lru_back_ = -1;  // front = next to go
  KeyIndex index_;
  int64_t num_cached_ = 0, num_evictable_ = 0;
  OnEvict on_evict_;
};

}  // namespace deepinfer
