// SPDX-License-Identifier: MIT
#include "kv/block_pool.h"

#include "base/check.h"

namespace deepinfer {

BlockPool::BlockPool(int64_t num_blocks, OnEvict on_evict)
    : blocks_(static_cast<size_t>(num_blocks)), on_evict_(std::move(on_evict)) {
  CHECK(num_blocks >= 0 && num_blocks <= INT32_MAX);
  for (int64_t i = num_blocks; i-- > 0;) free_.push_back(static_cast<BlockId>(i));  // low ids are handed out first
}

BlockPool::State& BlockPool::state(BlockId block) {
  CHECK(index(block) < blocks_.size());
  return blocks_[index(block)];
}
const BlockPool::State& BlockPool::state(BlockId block) const { return const_cast<BlockPool*>(this)->state(block); }

std::optional<std::vector<BlockId>> BlockPool::allocate(int64_t n) {
  CHECK(n >= 0);
  if (n > num_available()) return std::nullopt;
  std::vector<BlockId> out;
  out.reserve(static_cast<size_t>(n));
  while (static_cast<int64_t>(out.size()) < n) {
    if (free_.empty()) free_.push_back(evict_one());
    const BlockId block = free_.back();
    free_.pop_back();
    State& s = state(block);
    CHECK(s.num_references == 0 && !s.key && s.num_pins == 0);
    s.num_references = 1;
    s.behind_fast_replay = false;
    out.push_back(block);
  }
  return out;
}

BlockId BlockPool::evict_one() {
  CHECK(!lru_.empty());
  const BlockId block = lru_.front();
  State& s = state(block);
  CHECK(s.key && s.num_references == 0 && s.num_pins == 0);
  if (on_evict_) on_evict_(*s.key, {block, s.behind_fast_replay});
  lru_.pop_front();
  s.lru_place.reset();
  unkey(block);
  return block;
}

void BlockPool::unkey(BlockId block) {
  State& s = state(block);
  index_.erase(*s.key);
  s.key.reset();
  if (s.num_references == 0) --num_cached_;
}

void BlockPool::hold(BlockId block) {
  State& s = state(block);
  CHECK(s.num_references > 0 || s.key);
  if (s.num_references++ > 0) return;
  --num_cached_;
  if (s.lru_place) lru_.erase(*s.lru_place);
  s.lru_place.reset();
}

void BlockPool::release(BlockId block) {
  State& s = state(block);
  CHECK(s.num_references > 0);
  if (--s.num_references > 0) return;
  if (s.key) ++num_cached_;
  park(block);
}

void BlockPool::park(BlockId block) {
  State& s = state(block);
  CHECK(s.num_references == 0 && !s.lru_place);
  if (!s.key) {
    free_.push_back(block);
  } else if (s.num_pins == 0) {
    s.lru_place = lru_.insert(lru_.end(), block);
  }
}

void BlockPool::publish(BlockId block, const BlockKey& key, bool behind_fast_replay) {
  State& s = state(block);
  CHECK(s.num_references > 0);
  if (s.key == key) return;
  CHECK(!s.key);  // a block's bytes never change their meaning while it is held
  if (const auto twin = index_.find(key); twin != index_.end()) {
    State& other = state(twin->second);
    if (behind_fast_replay || !other.behind_fast_replay || other.num_references > 0 || other.num_pins > 0) return;
    forget(key);
  }
  s.key = key;
  s.behind_fast_replay = behind_fast_replay;
  index_.emplace(key, block);
}

std::optional<CachedBlock> BlockPool::find(const BlockKey& key) const {
  const auto at = index_.find(key);
  if (at == index_.end()) return std::nullopt;
  return CachedBlock{at->second, state(at->second).behind_fast_replay};
}

void BlockPool::pin(BlockId block) {
  State& s = state(block);
  CHECK(s.key);
  if (s.num_pins++ > 0 || !s.lru_place) return;
  lru_.erase(*s.lru_place);
  s.lru_place.reset();
}

void BlockPool::unpin(BlockId block) {
  State& s = state(block);
  CHECK(s.num_pins > 0);
  if (--s.num_pins == 0 && s.num_references == 0) park(block);
}

bool BlockPool::forget(const BlockKey& key) {
  const auto at = index_.find(key);
  if (at == index_.end()) return false;
  const BlockId block = at->second;
  State& s = state(block);
  if (s.num_pins > 0) return false;
  unkey(block);
  if (s.lru_place) {
    lru_.erase(*s.lru_place);
    s.lru_place.reset();
  }
  if (s.num_references == 0) park(block);
  return true;
}

void BlockPool::check_invariants() const {
  int64_t num_active = 0, num_cached = 0, num_pinned_only = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const State& s = blocks_[i];
    CHECK(s.num_references >= 0 && s.num_pins >= 0);
    if (s.key) {
      const auto at = index_.find(*s.key);
      CHECK(at != index_.end() && index(at->second) == i);
    }
    const bool cached = s.num_references == 0 && s.key.has_value();
    num_active += s.num_references > 0;
    num_cached += cached;
    num_pinned_only += cached && s.num_pins > 0;
    CHECK(s.lru_place.has_value() == (cached && s.num_pins == 0));
  }
  CHECK(num_cached == num_cached_);
  CHECK(num_cached - num_pinned_only == static_cast<int64_t>(lru_.size()));
  CHECK(num_active + num_cached + num_free() == num_blocks());
  for (const BlockId block : free_) CHECK(state(block).num_references == 0 && !state(block).key);
}

}  // namespace deepinfer
