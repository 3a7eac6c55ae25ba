// SPDX-License-Identifier: MIT
#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace deepinfer {
namespace {
BlockKey key(uint64_t n) { return {n, n * 7919}; }

// A held block takes one key in its life; publishing a second one is a caller's bug.
void publish_once(BlockPool& pool, BlockId block, const BlockKey& k, bool fast) {
  for (uint64_t n = 0; n < 100; ++n)
    if (pool.find(key(n)) && pool.find(key(n))->block == block) return;
  pool.publish(block, k, fast);
}
}  // namespace

TEST(BlockPool, RefusesWhenEveryBlockIsHeld) {
  BlockPool pool(4);
  const auto held = pool.allocate(4);
  ASSERT_TRUE(held);
  EXPECT_FALSE(pool.allocate(1));
  pool.release(held->front());
  EXPECT_TRUE(pool.allocate(1));
}

TEST(BlockPool, KeepsPublishedBlocksUntilRoomIsNeededOldestFirst) {
  std::vector<BlockKey> evicted;
  BlockPool pool(3, [&](const BlockKey& k, const CachedBlock&) { evicted.push_back(k); });
  const auto blocks = *pool.allocate(3);
  for (size_t i = 0; i < 3; ++i) pool.publish(blocks[i], key(i), false);
  for (size_t i = 3; i-- > 0;) pool.release(blocks[i]);  // released from the end: the tail is the oldest
  EXPECT_EQ(pool.num_cached(), 3);
  pool.hold(pool.find(key(2))->block);  // in use again
  ASSERT_TRUE(pool.allocate(2));
  EXPECT_EQ(evicted, (std::vector<BlockKey>{key(1), key(0)}));
  EXPECT_FALSE(pool.find(key(0)));
  EXPECT_TRUE(pool.find(key(2)));
  pool.check_invariants();
}

TEST(BlockPool, FirstPublisherKeepsTheKey) {
  BlockPool pool(2);
  const auto blocks = *pool.allocate(2);
  pool.publish(blocks[0], key(1), false);
  pool.publish(blocks[1], key(1), false);
  EXPECT_EQ(pool.find(key(1))->block, blocks[0]);
  pool.release(blocks[1]);
  EXPECT_EQ(pool.num_free(), 1);
  pool.check_invariants();
}

TEST(BlockPool, ExactBlocksReplaceIdleFastOnes) {
  BlockPool pool(2);
  const auto blocks = *pool.allocate(2);
  pool.publish(blocks[0], key(1), true);
  pool.release(blocks[0]);
  pool.publish(blocks[1], key(1), false);
  EXPECT_EQ(pool.find(key(1))->block, blocks[1]);
  EXPECT_FALSE(pool.find(key(1))->behind_fast_replay);
  pool.check_invariants();
}

TEST(BlockPool, PinnedBlocksAreNotEvicted) {
  BlockPool pool(1);
  const auto blocks = *pool.allocate(1);
  pool.publish(blocks[0], key(1), false);
  pool.pin(blocks[0]);
  pool.release(blocks[0]);
  EXPECT_FALSE(pool.allocate(1));
  pool.unpin(blocks[0]);
  EXPECT_TRUE(pool.allocate(1));
}

TEST(BlockPool, LosesNoBlockUnderRandomUse) {
  BlockPool pool(64);
  Rng rng(42);
  std::vector<std::vector<BlockId>> held;
  for (int step = 0; step < 20000; ++step) {
    switch (rng.below(4)) {
      case 0:
        if (auto blocks = pool.allocate(static_cast<int64_t>(rng.below(8)))) held.push_back(*blocks);
        break;
      case 1:
        if (!held.empty()) {
          const size_t i = rng.below(held.size());
          for (size_t j = held[i].size(); j-- > 0;) pool.release(held[i][j]);
          held.erase(held.begin() + static_cast<int64_t>(i));
        }
        break;
      case 2:
        if (!held.empty())
          for (const BlockId block : held.back()) publish_once(pool, block, key(rng.below(100)), rng.below(2) == 0);
        break;
      default:
        if (const auto found = pool.find(key(rng.below(100)))) {
          pool.hold(found->block);
          held.push_back({found->block});
        }
    }
    if (step % 16 == 0) pool.check_invariants();
  }
  for (const auto& blocks : held)
    for (const BlockId block : blocks) pool.release(block);
  pool.check_invariants();
  EXPECT_EQ(pool.num_available(), 64);
}

}  // namespace deepinfer
