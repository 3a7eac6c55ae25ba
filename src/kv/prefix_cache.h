// SPDX-License-Identifier: MIT
// Finds and keeps the global KV of prompt beginnings across the tiers: device blocks first, host memory second.
// The hit length comes from Block KV alone (layer one of the hit policy); the window state at its end is a stored tail
// where there is one (layer two, tail_cache.h), else it is replayed: the scheduler's ReplayPlan. Every lookup that ends
// early says why. Thread: plan.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/host_tier.h"
#include "kv/tail_cache.h"

namespace deepinfer {

enum class MissReason {
  kNone,         // every full block of the prompt was found
  kNeverStored,  // the next block's key is in no tier
  kReplay,       // the next block was computed behind a fast replay and the request wants exact results
  kNoRoom,       // it is in host memory, but no device block is free to load it into
  kDisabled,     // the request or the engine asked for no prefix cache
};
inline constexpr int kNumMissReasons = 5;
std::string_view to_string(MissReason reason);

// One copy between a device block and a host slot, for the engine; the slot is held until finish_copy().
//   kOffload  of an evicted block: read it before the step that reuses the block runs
//   kLoad     into a block that is pinned and marked as loading: sequences that hold it wait
//   kKeep     of a cached block that is pinned meanwhile: made ahead, so that its eviction costs no copy
struct BlockCopy {
  enum class Direction { kOffload, kLoad, kKeep };
  Direction direction{};
  BlockId block{};
  HostSlot slot{};
};

struct PrefixHit {
  std::vector<BlockId> blocks;   // held for the caller, in order
  std::vector<BlockCopy> loads;  // must land before the sequence runs; their blocks are among `blocks`
  MissReason reason = MissReason::kNone;
  bool behind_fast_replay = false;  // a block of the hit was
  bool awaits_loads = false;        // a block of the hit is still being loaded, for it or for another sequence
  int64_t num_tokens() const { return static_cast<int64_t>(blocks.size()) * kBlockTokens; }
};

// Blocks that became full, and the chain they stand in.
struct PublishedBlocks {
  std::vector<BlockKey> keys;  // from the chain's first block to the last published
  Range blocks;                // of the chain
  std::vector<BlockId> ids;    // one a block
  bool behind_fast_replay = false;
};

// A tail that was just recorded, and the chain at whose last block's end it stands.
struct PublishedTail {
  std::vector<BlockKey> keys;
  Tail tail;
};

struct PrefixCacheStats {
  int64_t num_lookups = 0, num_prompt_tokens = 0, num_hit_tokens = 0, num_host_hit_tokens = 0;
  int64_t num_published = 0, num_evicted = 0, num_offloaded = 0, num_kept = 0, num_loaded = 0;
  std::array<int64_t, kNumMissReasons> misses{};
};

class PrefixCache {
 public:
  PrefixCache(int64_t num_blocks, int64_t num_host_slots, int64_t tail_bytes_max = 0);

  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  const PrefixCacheStats& stats() const { return stats_; }

  // Longest usable prefix of a prompt with these block keys; at least one token is always left to compute.
  PrefixHit lookup(std::span<const BlockKey> keys, int64_t num_prompt_tokens, bool exact_only);
  // How long the hit would be, without holding or loading anything. For admission and routing.
  int64_t probe_tokens(std::span<const BlockKey> keys, int64_t num_prompt_tokens, bool exact_only) const;

  // Blocks [first, last) of a sequence are full and computed: offer them to later prompts.
  void publish(const BlockTable& table, std::span<const BlockKey> keys, Range blocks, bool behind_fast_replay);

  // The window state at the end of a chain's last block.
  void publish_tail(std::span<const BlockKey> chain, Tail tail);
  TailCache& tails() { return tails_; }
  const TailCache& tails() const { return tails_; }

  // From here on what is published is kept for take_published(), which must be called before the next plan: until then
  // the blocks hold these bytes.
  void record_published() { records_published_ = true; }
  std::vector<PublishedBlocks> take_published();
  // The same for tails.
  void record_published_tails() { records_published_tails_ = true; }
  std::vector<PublishedTail> take_published_tails();

  // Copies to start: evicted blocks that go to host memory. Each must be read before the step that reuses the block,
  // which is the step planned next: the engine runs offloads first. Cleared by the call.
  std::vector<BlockCopy> take_offloads();
  // Up to `num_max` of the blocks that would be evicted next, not in host memory yet: copied while steps run.
  std::vector<BlockCopy> take_keeps(int64_t num_max);
  void finish_copy(const BlockCopy& copy);
  bool is_loading(const BlockTable& table) const;  // any of its blocks

  // Drops a key from every tier where it is idle, with the tail at its end. For a tenant's deletion.
  void forget(const BlockKey& key);
  void check_invariants() const;

 private:
  std::optional<BlockId> load_from_host(const BlockKey& key, HostSlot slot, bool behind_fast_replay, PrefixHit& hit);
  int64_t usable_blocks(std::span<const BlockKey> keys, int64_t num_prompt_tokens) const;

  HostTier host_;
  std::vector<BlockCopy> offloads_;
  std::vector<bool> loading_;  // by block
  std::vector<PublishedBlocks> published_;
  std::vector<PublishedTail> published_tails_;
  TailCache tails_;
  bool records_published_ = false, records_published_tails_ = false;
  int64_t num_loading_ = 0;
  PrefixCacheStats stats_;
  BlockPool pool_;  // after what its eviction callback uses
};

}  // namespace deepinfer
