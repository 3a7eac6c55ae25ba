// SPDX-License-Identifier: MIT
#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

std::vector<BlockKey> keys(uint64_t conversation, size_t n) {
  std::vector<BlockKey> out;
  for (size_t i = 0; i < n; ++i) out.push_back({conversation, i + 1});
  return out;
}

// Runs a prompt of n full blocks plus one token to its end: hit, compute the rest, publish, release.
PrefixHit run_prompt(PrefixCache& cache, const std::vector<BlockKey>& k, bool exact_only = false, bool fast = false) {
  const int64_t num_tokens = static_cast<int64_t>(k.size()) * kBlockTokens + 1;
  PrefixHit hit = cache.lookup(k, num_tokens, exact_only);
  for (const BlockCopy& copy : hit.loads) cache.finish_copy(copy);
  BlockTable table(hit.blocks);
  const auto more = cache.pool().allocate(BlockTable::blocks_for(num_tokens) - table.num_blocks());
  CHECK(more);
  for (const BlockId block : *more) table.push_back(block);
  for (const BlockCopy& copy : cache.take_offloads()) cache.finish_copy(copy);
  cache.publish(table, k, {static_cast<int64_t>(hit.blocks.size()), static_cast<int64_t>(k.size())}, fast);
  for (size_t i = table.blocks().size(); i-- > 0;) cache.pool().release(table.blocks()[i]);
  cache.check_invariants();
  return hit;
}

}  // namespace

TEST(PrefixCache, NeverCoversTheWholePrompt) {
  PrefixCache cache(16, 0);
  const auto k = keys(1, 4);
  run_prompt(cache, k);
  EXPECT_EQ(cache.probe_tokens(k, 4 * kBlockTokens, false), 3 * kBlockTokens);
  EXPECT_EQ(cache.probe_tokens(k, 4 * kBlockTokens + 1, false), 4 * kBlockTokens);
}

TEST(PrefixCache, SaysWhyAHitEnds) {
  PrefixCache cache(16, 0);
  auto k = keys(1, 4);
  EXPECT_EQ(run_prompt(cache, k).reason, MissReason::kNeverStored);
  EXPECT_EQ(run_prompt(cache, k).reason, MissReason::kNone);
  k[2] = {9, 9};
  const PrefixHit hit = run_prompt(cache, k);
  EXPECT_EQ(hit.num_tokens(), 2 * kBlockTokens);
  EXPECT_EQ(hit.reason, MissReason::kNeverStored);
}

TEST(PrefixCache, ExactRequestsDoNotUseBlocksBehindAFastReplay) {
  PrefixCache cache(16, 0);
  const auto k = keys(1, 3);
  run_prompt(cache, k, false, true);
  const PrefixHit exact = run_prompt(cache, k, true);
  EXPECT_EQ(exact.num_tokens(), 0);
  EXPECT_EQ(exact.reason, MissReason::kReplay);
  EXPECT_EQ(run_prompt(cache, k, true).num_tokens(), 3 * kBlockTokens);  // the exact run replaced them
}

TEST(PrefixCache, EvictedBlocksComeBackFromHostMemory) {
  PrefixCache cache(6, 16);
  const auto first = keys(1, 5), second = keys(2, 5);
  run_prompt(cache, first);
  run_prompt(cache, second);  // needs all six blocks
  const PrefixHit hit = run_prompt(cache, first);
  EXPECT_EQ(hit.num_tokens(), 5 * kBlockTokens);
  EXPECT_FALSE(hit.loads.empty());
  EXPECT_GT(cache.stats().num_host_hit_tokens, 0);
}

// A cached block is copied ahead; its eviction then needs no copy and its bytes are found in host memory.
TEST(PrefixCache, KeptBlocksAreEvictedWithoutACopy) {
  PrefixCache cache(6, 16);
  const auto first = keys(1, 5), second = keys(2, 5);
  run_prompt(cache, first);
  std::vector<BlockCopy> keeps = cache.take_keeps(3);
  ASSERT_EQ(keeps.size(), 3u);
  EXPECT_EQ(cache.pool().num_available(), 3);  // pinned while they are copied
  cache.check_invariants();
  for (const BlockCopy& copy : keeps) cache.finish_copy(copy);
  keeps = cache.take_keeps(8);
  EXPECT_EQ(keeps.size(), 2u);
  for (const BlockCopy& copy : keeps) cache.finish_copy(copy);
  EXPECT_TRUE(cache.take_keeps(8).empty());
  run_prompt(cache, second);
  EXPECT_EQ(cache.stats().num_offloaded, 0);
  EXPECT_EQ(run_prompt(cache, first).num_tokens(), 5 * kBlockTokens);
}

// What was computed exactly takes the place of what was not, in host memory too.
TEST(PrefixCache, ExactBlocksReplaceFastOnesInHostMemory) {
  HostTier host(4);
  const BlockKey key{1, 1};
  const auto fast = host.admit(key, true);
  ASSERT_TRUE(fast);
  EXPECT_FALSE(host.admit(key, false));  // its copy is under way
  host.copied(*fast);
  EXPECT_FALSE(host.admit(key, true));
  EXPECT_EQ(host.admit(key, false), fast);
  host.copied(*fast);
  EXPECT_FALSE(host.find(key)->behind_fast_replay);
  EXPECT_FALSE(host.admit(key, false));
  host.check_invariants();
}

// Until its copy has landed a loading block belongs to the copy: nobody may run on it, nobody may reuse it.
TEST(PrefixCache, LoadingBlocksWaitAndStayWhenTheirSequenceGoes) {
  PrefixCache cache(6, 16);
  const auto first = keys(1, 5), second = keys(2, 5);
  run_prompt(cache, first);
  run_prompt(cache, second);
  PrefixHit hit = cache.lookup(first, 5 * kBlockTokens + 1, false);
  ASSERT_FALSE(hit.loads.empty());
  EXPECT_TRUE(hit.awaits_loads);
  const BlockTable table(hit.blocks);
  EXPECT_TRUE(cache.is_loading(table));
  const PrefixHit shared = cache.lookup(first, 5 * kBlockTokens + 1, false);
  EXPECT_TRUE(shared.awaits_loads && shared.loads.empty());
  for (const BlockCopy& copy : cache.take_offloads()) cache.finish_copy(copy);
  for (const BlockId block : hit.blocks) cache.pool().release(block);
  for (const BlockId block : shared.blocks) cache.pool().release(block);
  EXPECT_EQ(cache.pool().num_available(), 6 - static_cast<int64_t>(hit.loads.size()));
  cache.check_invariants();
  for (const BlockCopy& copy : hit.loads) cache.finish_copy(copy);
  EXPECT_FALSE(cache.is_loading(table));
  EXPECT_EQ(cache.pool().num_available(), 6);
  cache.check_invariants();
}

}  // namespace deepinfer
