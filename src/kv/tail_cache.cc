// SPDX-License-Identifier: MIT
#include "kv/tail_cache.h"

#include <utility>

#include "base/check.h"

namespace deepinfer {

bool TailCache::put(const BlockKey& key, Tail tail) {
  const int64_t num_bytes = tail.bytes ? static_cast<int64_t>(tail.bytes->size()) : 0;
  if (num_bytes == 0 || num_bytes > bytes_max_) return false;
  if (const auto at = entries_.find(key); at != entries_.end()) {
    if (tail.behind_fast_replay || !at->second.tail.behind_fast_replay) return false;
    drop(at);
  }
  while (num_bytes_ + num_bytes > bytes_max_) {
    drop(entries_.find(lru_.front()));
    ++stats_.num_evicted;
  }
  num_bytes_ += num_bytes;
  ++stats_.num_puts;
  lru_.push_back(key);
  entries_.emplace(key, Entry{std::move(tail), std::prev(lru_.end())});
  return true;
}

std::optional<FoundTail> TailCache::find(std::span<const BlockKey> keys, int64_t num_blocks_min, int64_t num_blocks_max,
                                         bool exact_only) {
  for (int64_t n = num_blocks_max; n > num_blocks_min && n > 0; --n) {
    const auto at = entries_.find(keys[static_cast<size_t>(n - 1)]);
    if (at == entries_.end() || (exact_only && at->second.tail.behind_fast_replay)) continue;
    lru_.splice(lru_.end(), lru_, at->second.lru_place);
    ++stats_.num_hits;
    return FoundTail{at->second.tail, n};
  }
  return std::nullopt;
}

bool TailCache::contains(const BlockKey& key, bool exact_only) const {
  const auto at = entries_.find(key);
  return at != entries_.end() && !(exact_only && at->second.tail.behind_fast_replay);
}

const Tail* TailCache::look(const BlockKey& key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : &at->second.tail;
}

bool TailCache::forget(const BlockKey& key) {
  const auto at = entries_.find(key);
  if (at == entries_.end()) return false;
  drop(at);
  return true;
}

void TailCache::drop(std::unordered_map<BlockKey, Entry, BlockKeyHash>::iterator at) {
  num_bytes_ -= static_cast<int64_t>(at->second.tail.bytes->size());
  lru_.erase(at->second.lru_place);
  entries_.erase(at);
}

void TailCache::check_invariants() const {
  int64_t num_bytes = 0;
  for (const BlockKey& key : lru_) num_bytes += static_cast<int64_t>(entries_.at(key).tail.bytes->size());
  CHECK(lru_.size() == entries_.size() && num_bytes == num_bytes_ && num_bytes_ <= bytes_max_);
}

}  // namespace deepinfer
