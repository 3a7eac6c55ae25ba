// SPDX-License-Identifier: MIT
#include "kv/tail_cache.h"

#include <gtest/gtest.h>

#include "kv/prefix_cache.h"

namespace deepinfer {
namespace {

std::vector<BlockKey> chain_of(int64_t num_blocks, TokenId first = 0) {
  BlockKeyChain chain({"salt", "model", 1});
  std::vector<TokenId> tokens(static_cast<size_t>(num_blocks * kBlockTokens), 7);
  tokens[0] = first;
  return chain.extend(tokens, {});
}

Tail tail_of(size_t num_bytes, bool behind_fast_replay = false) {
  return {std::make_shared<std::vector<uint8_t>>(num_bytes, uint8_t{1}), behind_fast_replay};
}

TEST(TailCache, FindsTheLastOneInARange) {
  TailCache tails(1000);
  const auto keys = chain_of(6);
  ASSERT_TRUE(tails.put(keys[1], tail_of(100)));
  ASSERT_TRUE(tails.put(keys[3], tail_of(100)));
  EXPECT_EQ(tails.find(keys, 0, 6, true)->num_blocks, 4);
  EXPECT_EQ(tails.find(keys, 0, 3, true)->num_blocks, 2);
  EXPECT_FALSE(tails.find(keys, 2, 3, true));
  EXPECT_FALSE(tails.find(keys, 4, 6, true));
  EXPECT_FALSE(tails.find(chain_of(6, 1), 0, 6, true));
}

TEST(TailCache, ExactRequestsDoNotSeeTailsBehindAFastReplayUntilExactOnesTakeTheirPlace) {
  TailCache tails(1000);
  const auto keys = chain_of(1);
  ASSERT_TRUE(tails.put(keys[0], tail_of(100, true)));
  EXPECT_FALSE(tails.find(keys, 0, 1, true));
  EXPECT_TRUE(tails.find(keys, 0, 1, false));
  EXPECT_FALSE(tails.put(keys[0], tail_of(100, true))) << "one is there";
  EXPECT_TRUE(tails.put(keys[0], tail_of(100)));
  EXPECT_TRUE(tails.find(keys, 0, 1, true));
  EXPECT_FALSE(tails.put(keys[0], tail_of(100, true)));
  EXPECT_EQ(tails.num_bytes(), 100);
}

TEST(TailCache, TheLeastRecentlyUsedGoesAndBytesStayWithinTheirBound) {
  TailCache tails(250);
  const auto keys = chain_of(4);
  ASSERT_TRUE(tails.put(keys[0], tail_of(100)));
  ASSERT_TRUE(tails.put(keys[1], tail_of(100)));
  ASSERT_TRUE(tails.find(keys, 0, 1, true));  // of block 0
  ASSERT_TRUE(tails.put(keys[2], tail_of(120)));
  EXPECT_TRUE(tails.contains(keys[0], true));
  EXPECT_FALSE(tails.contains(keys[1], true));
  EXPECT_FALSE(tails.put(keys[3], tail_of(251))) << "longer than all room";
  EXPECT_FALSE(tails.put(keys[3], {}));
  EXPECT_EQ(tails.stats().num_evicted, 1);
  EXPECT_TRUE(tails.forget(keys[2]));
  EXPECT_FALSE(tails.forget(keys[2]));
  EXPECT_EQ(tails.num_bytes(), 100);
  tails.check_invariants();
}

TEST(TailCache, PublishedTailsAreHandedToAStoreOnce) {
  PrefixCache cache(4, 0, 1000);
  const auto keys = chain_of(2);
  cache.publish_tail(keys, tail_of(10));
  EXPECT_TRUE(cache.take_published_tails().empty()) << "nobody asked";
  cache.record_published_tails();
  cache.publish_tail(keys, tail_of(10));  // it is there already
  EXPECT_TRUE(cache.take_published_tails().empty());
  cache.publish_tail(std::span(keys).first(1), tail_of(10));
  const auto published = cache.take_published_tails();
  ASSERT_EQ(published.size(), 1u);
  EXPECT_EQ(published[0].keys.size(), 1u);
  EXPECT_TRUE(cache.take_published_tails().empty());
}

}  // namespace
}  // namespace deepinfer
