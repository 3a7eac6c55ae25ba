// SPDX-License-Identifier: MIT
#include "kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer {

std::string_view to_string(MissReason reason) {
  static constexpr std::string_view kNames[kNumMissReasons] = {"none", "never_stored", "replay", "no_room", "disabled"};
  return kNames[static_cast<int>(reason)];
}

PrefixCache::PrefixCache(int64_t num_blocks, int64_t num_host_slots, int64_t tail_bytes_max)
    : host_(num_host_slots),
      loading_(static_cast<size_t>(num_blocks), false),
      tails_(tail_bytes_max),
      pool_(num_blocks, [this](const BlockKey& key, const CachedBlock& block) {
        ++stats_.num_evicted;
        const auto slot = host_.admit(key, block.behind_fast_replay);
        if (!slot) return;
        ++stats_.num_offloaded;
        offloads_.push_back({BlockCopy::Direction::kOffload, block.block, *slot});
      }) {}

int64_t PrefixCache::usable_blocks(std::span<const BlockKey> keys, int64_t num_prompt_tokens) const {
  // The last token must be computed to have logits, so a hit never covers the whole prompt.
  return std::min<int64_t>(static_cast<int64_t>(keys.size()), (num_prompt_tokens - 1) / kBlockTokens);
}

PrefixHit PrefixCache::lookup(std::span<const BlockKey> keys, int64_t num_prompt_tokens, bool exact_only) {
  PrefixHit hit;
  ++stats_.num_lookups;
  stats_.num_prompt_tokens += num_prompt_tokens;
  const int64_t usable = usable_blocks(keys, num_prompt_tokens);
  for (int64_t i = 0; i < usable; ++i) {
    const BlockKey& key = keys[static_cast<size_t>(i)];
    const auto on_device = pool_.find(key);
    const auto in_host = on_device ? std::nullopt : host_.find(key);
    if (!on_device && !in_host) {
      hit.reason = MissReason::kNeverStored;
      break;
    }
    const bool fast = on_device ? on_device->behind_fast_replay : in_host->behind_fast_replay;
    if (fast && exact_only) {
      hit.reason = MissReason::kReplay;
      break;
    }
    if (on_device) {
      pool_.hold(on_device->block);
      hit.blocks.push_back(on_device->block);
      hit.awaits_loads |= loading_[index(on_device->block)];
    } else {
      const auto block = load_from_host(key, in_host->slot, fast, hit);
      if (!block) {
        hit.reason = MissReason::kNoRoom;
        break;
      }
      stats_.num_host_hit_tokens += kBlockTokens;
      hit.blocks.push_back(*block);
      hit.awaits_loads = true;
    }
    hit.behind_fast_replay |= fast;
  }
  stats_.num_hit_tokens += hit.num_tokens();
  ++stats_.misses[static_cast<size_t>(hit.reason)];
  return hit;
}

std::optional<BlockId> PrefixCache::load_from_host(const BlockKey& key, HostSlot slot, bool behind_fast_replay,
                                                   PrefixHit& hit) {
  host_.begin_load(slot);  // before allocating: the eviction it may cause must not take this slot
  auto block = pool_.allocate(1);
  if (!block) {
    host_.copied(slot);
    return std::nullopt;
  }
  pool_.publish(block->front(), key, behind_fast_replay);
  pool_.pin(block->front());  // whoever lets go of it: the copy still writes it
  loading_[index(block->front())] = true;
  ++num_loading_;
  hit.loads.push_back({BlockCopy::Direction::kLoad, block->front(), slot});
  return block->front();
}

int64_t PrefixCache::probe_tokens(std::span<const BlockKey> keys, int64_t num_prompt_tokens, bool exact_only) const {
  const int64_t usable = usable_blocks(keys, num_prompt_tokens);
  int64_t num_blocks = 0;
  for (; num_blocks < usable; ++num_blocks) {
    const BlockKey& key = keys[static_cast<size_t>(num_blocks)];
    const auto on_device = pool_.find(key);
    if (on_device ? (exact_only && on_device->behind_fast_replay) : !host_.contains(key)) break;
  }
  return num_blocks * kBlockTokens;
}

void PrefixCache::publish(const BlockTable& table, std::span<const BlockKey> keys, Range blocks,
                          bool behind_fast_replay) {
  CHECK(blocks.begin >= 0 && blocks.end <= table.num_blocks() && blocks.end <= static_cast<int64_t>(keys.size()));
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    pool_.publish(table.blocks()[static_cast<size_t>(i)], keys[static_cast<size_t>(i)], behind_fast_replay);
    ++stats_.num_published;
  }
  if (!records_published_ || blocks.empty()) return;
  const auto first = table.blocks().begin();
  published_.push_back({.keys = {keys.begin(), keys.begin() + blocks.end},
                        .blocks = blocks,
                        .ids = {first + blocks.begin, first + blocks.end},
                        .behind_fast_replay = behind_fast_replay});
}

void PrefixCache::publish_tail(std::span<const BlockKey> chain, Tail tail) {
  CHECK(!chain.empty());
  if (!tails_.put(chain.back(), tail) || !records_published_tails_) return;
  published_tails_.push_back({{chain.begin(), chain.end()}, std::move(tail)});
}

std::vector<PublishedTail> PrefixCache::take_published_tails() { return std::exchange(published_tails_, {}); }

std::vector<PublishedBlocks> PrefixCache::take_published() { return std::exchange(published_, {}); }

std::vector<BlockCopy> PrefixCache::take_offloads() { return std::exchange(offloads_, {}); }

std::vector<BlockCopy> PrefixCache::take_keeps(int64_t num_max) {
  std::vector<BlockCopy> keeps;
  if (host_.num_slots() == 0) return keeps;
  pool_.for_each_evictable([&](BlockId block, const BlockKey& key, bool behind_fast_replay) {
    if (static_cast<int64_t>(keeps.size()) == num_max) return false;
    if (host_.contains(key)) return true;
    const auto slot = host_.admit(key, behind_fast_replay);
    if (!slot) return false;
    keeps.push_back({BlockCopy::Direction::kKeep, block, *slot});
    return true;
  });
  for (const BlockCopy& keep : keeps) pool_.pin(keep.block);
  stats_.num_kept += static_cast<int64_t>(keeps.size());
  return keeps;
}

void PrefixCache::finish_copy(const BlockCopy& copy) {
  host_.copied(copy.slot);
  if (copy.direction == BlockCopy::Direction::kOffload) return;
  if (copy.direction == BlockCopy::Direction::kLoad) {
    CHECK(loading_[index(copy.block)]);
    loading_[index(copy.block)] = false;
    --num_loading_;
    ++stats_.num_loaded;
  }
  pool_.unpin(copy.block);
}

bool PrefixCache::is_loading(const BlockTable& table) const {
  return num_loading_ > 0 && std::ranges::any_of(table.blocks(), [&](BlockId block) { return loading_[index(block)]; });
}

void PrefixCache::forget(const BlockKey& key) {
  pool_.forget(key);
  host_.forget(key);
  tails_.forget(key);
}

void PrefixCache::check_invariants() const {
  CHECK(std::ranges::count(loading_, true) == num_loading_);
  pool_.check_invariants();
  host_.check_invariants();
  tails_.check_invariants();
}

}  // namespace deepinfer
