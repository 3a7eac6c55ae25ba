// SPDX-License-Identifier: MIT
#include "kv/block_pool.h"

#include "base/check.h"

namespace deepinfer {

BlockPool::BlockPool(int64_t num_blocks, OnEvict on_evict)
    : blocks_(static_cast<size_t>(num_blocks)), index_(num_blocks), on_evict_(std::move(on_evict)) {
  CHECK(num_blocks >= 0 && num_blocks <= INT32_MAX);
  free_.reserve(blocks_.size());
  for (int64_t i = num_blocks; i-- > 0;) free_.push_back(static_cast<BlockId>(i));  // low ids are handed out first
}

BlockPool::State& BlockPool::state(BlockId block) {
  CHECK(index(block) < blocks_.size());
  return blocks_[index(block)];
}
const BlockPool::State& BlockPool::state(BlockId block) const { return const_cast<BlockPool*>(this)->state(block); }

std::optional<std::vector<BlockId>> BlockPool::allocate(int64_t n) {
  std::vector<BlockId> blocks;
  if (!allocate(n, blocks)) return std::nullopt;
  return blocks;
}

bool BlockPool::allocate(int64_t n, std::vector<BlockId>& blocks) {
  CHECK(n >= 0);
  if (n > num_available()) return false;
  for (; n > 0; --n) {
    if (free_.empty()) free_.push_back(evict_one());
    const BlockId block = free_.back();
    free_.pop_back();
    State& s = state(block);
    CHECK(s.num_references == 0 && !s.key && s.num_pins == 0);
    s.num_references = 1;
    s.behind_fast_replay = false;
    blocks.push_back(block);
  }
  return true;
}

BlockId BlockPool::evict_one() {
  CHECK(lru_front_ >= 0);
  const BlockId block = static_cast<BlockId>(lru_front_);
  State& s = state(block);
  CHECK(s.key && s.num_references == 0 && s.num_pins == 0);
  if (on_evict_) on_evict_(*s.key, {block, s.behind_fast_replay});
  leave_lru(block);
  unkey(block);
  return block;
}

void BlockPool::enter_lru(BlockId block) {
  State& s = state(block);
  CHECK(!s.is_in_lru);
  const int32_t place = static_cast<int32_t>(index(block));
  s.is_in_lru = true;
  s.before = lru_back_;
  s.behind = -1;
  (lru_back_ < 0 ? lru_front_ : blocks_[static_cast<size_t>(lru_back_)].behind) = place;
  lru_back_ = place;
  ++num_evictable_;
}

void BlockPool::leave_lru(BlockId block) {
  State& s = state(block);
  if (!s.is_in_lru) return;
  (s.before < 0 ? lru_front_ : blocks_[static_cast<size_t>(s.before)].behind) = s.behind;
  (s.behind < 0 ? lru_back_ : blocks_[static_cast<size_t>(s.behind)].before) = s.before;
  s.is_in_lru = false;
  --num_evictable_;
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
  leave_lru(block);
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
  CHECK(s.num_references == 0 && !s.is_in_lru);
  if (!s.key) free_.push_back(block);
  else if (s.num_pins == 0) enter_lru(block);
}

void BlockPool::publish(BlockId block, const BlockKey& key, bool behind_fast_replay) {
  State& s = state(block);
  CHECK(s.num_references > 0);
  if (s.key == key) return;
  CHECK(!s.key);  // a block's bytes never change their meaning while it is held
  if (const auto twin = index_.find(key)) {
    State& other = state(*twin);
    if (behind_fast_replay || !other.behind_fast_replay || other.num_references > 0 || other.num_pins > 0) return;
    forget(key);
  }
  s.key = key;
  s.behind_fast_replay = behind_fast_replay;
  index_.insert(key, block);
}

std::optional<CachedBlock> BlockPool::find(const BlockKey& key) const {
  const auto block = index_.find(key);
  if (!block) return std::nullopt;
  return CachedBlock{*block, state(*block).behind_fast_replay};
}

void BlockPool::pin(BlockId block) {
  State& s = state(block);
  CHECK(s.key);
  ++s.num_pins;
  leave_lru(block);
}

void BlockPool::unpin(BlockId block) {
  State& s = state(block);
  CHECK(s.num_pins > 0);
  if (--s.num_pins == 0 && s.num_references == 0) park(block);
}

void BlockPool::for_each_evictable(
    const std::function<bool(BlockId block, const BlockKey& key, bool behind_fast_replay)>& visit) const {
  for (int32_t i = lru_front_; i >= 0; i = blocks_[static_cast<size_t>(i)].behind)
    if (const State& s = blocks_[static_cast<size_t>(i)]; !visit(static_cast<BlockId>(i), *s.key, s.behind_fast_replay))
      return;
}

bool BlockPool::forget(const BlockKey& key) {
  const auto found = index_.find(key);
  if (!found) return false;
  const BlockId block = *found;
  State& s = state(block);
  if (s.num_pins > 0) return false;
  unkey(block);
  leave_lru(block);
  if (s.num_references == 0) park(block);
  return true;
}

void BlockPool::check_invariants() const {
  int64_t num_active = 0, num_cached = 0, num_pinned_only = 0, num_keys = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const State& s = blocks_[i];
    CHECK(s.num_references >= 0 && s.num_pins >= 0);
    if (s.key) {
      const auto at = index_.find(*s.key);
      CHECK(at && index(*at) == i);
      ++num_keys;
    }
    const bool cached = s.num_references == 0 && s.key.has_value();
    num_active += s.num_references > 0;
    num_cached += cached;
    num_pinned_only += cached && s.num_pins > 0;
    CHECK(s.is_in_lru == (cached && s.num_pins == 0));
  }
  CHECK(num_cached == num_cached_);
  CHECK(num_cached - num_pinned_only == num_evictable_ && num_keys == index_.size());
  int64_t num_in_lru = 0;
  for (int32_t i = lru_front_, before = -1; i >= 0; before = i, i = blocks_[static_cast<size_t>(i)].behind) {
    CHECK(blocks_[static_cast<size_t>(i)].is_in_lru && blocks_[static_cast<size_t>(i)].before == before);
    CHECK(++num_in_lru <= num_evictable_);
  }
  CHECK(num_in_lru == num_evictable_);
  CHECK(num_active + num_cached + num_free() == num_blocks());
  for (const BlockId block : free_) CHECK(state(block).num_references == 0 && !state(block).key);
}

}  // namespace deepinfer
