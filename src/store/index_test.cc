// SPDX-License-Identifier: MIT
#include "store/index.h"

#include <gtest/gtest.h>

#include <map>

#include "base/philox.h"

namespace deepinfer {
namespace {

std::vector<BlockKey> chain(uint64_t seed, int64_t n) {
  Rng rng(seed);
  std::vector<BlockKey> keys;
  for (int64_t i = 0; i < n; ++i) keys.push_back({rng.next_u64(), rng.next_u64()});
  return keys;
}

ExtentRecord record(std::span<const BlockKey> keys, int64_t begin, int64_t n, uint64_t segment, uint32_t offset = 1) {
  ExtentRecord r{.key = keys[static_cast<size_t>(begin)], .segment = SegmentId{segment}, .offset_pages = offset};
  r.num_blocks = static_cast<uint8_t>(n);
  for (int64_t i = 0; i < n; ++i)
    r.fingerprints[static_cast<size_t>(i)] = fingerprint_of(keys[static_cast<size_t>(begin + i)]);
  return r;
}

void store_chain(ExtentIndex& index, std::span<const BlockKey> keys, uint64_t segment) {
  for (int64_t i = 0; i < static_cast<int64_t>(keys.size()); i += kExtentBlocks)
    index.insert(record(keys, i, std::min<int64_t>(kExtentBlocks, static_cast<int64_t>(keys.size()) - i), segment));
}

}  // namespace

TEST(ExtentIndex, KnowsNothingAtFirst) {
  const ExtentIndex index;
  const auto keys = chain(1, 100);
  const PrefixMatch match = index.longest_prefix(keys, false);
  EXPECT_EQ(match.num_blocks, 0);
  EXPECT_EQ(match.reason, StoreMiss::kNeverStored);
}

TEST(ExtentIndex, FindsPrefixesOfEveryLength) {
  ExtentIndex index;
  const auto keys = chain(2, 300);
  store_chain(index, std::span(keys).first(200), 1);
  for (int64_t n = 0; n <= 300; ++n) {
    const auto asked = std::span(keys).first(static_cast<size_t>(n));
    const PrefixMatch match = index.longest_prefix(asked, false);
    EXPECT_EQ(match.num_blocks, std::min<int64_t>(n, 200)) << n;
    EXPECT_EQ(match.reason, n <= 200 ? StoreMiss::kNone : StoreMiss::kNeverStored);
    EXPECT_EQ(index.prefix_blocks(asked, false), match.num_blocks);
  }
}

// 2 log2(n) probes find the end; serving.md 9.6.
TEST(ExtentIndex, FindsTheEndByFewProbes) {
  ExtentIndex index;
  const auto keys = chain(3, 256 * kExtentBlocks);
  const PrefixMatch none = index.longest_prefix(keys, false);
  EXPECT_LE(none.num_probes, 2);
  store_chain(index, std::span(keys).first(100 * kExtentBlocks), 1);
  const PrefixMatch match = index.longest_prefix(keys, false);
  EXPECT_EQ(match.num_blocks, 100 * kExtentBlocks);
  EXPECT_LE(match.num_probes, 100 + 1 + 2 * 8);  // every cell of the hit is checked, and the one after it
}

TEST(ExtentIndex, AHoleInTheMiddleEndsTheHitWithItsReason) {
  ExtentIndex index;
  const auto keys = chain(4, 10 * kExtentBlocks);
  for (int64_t cell = 0; cell < 10; ++cell)
    index.insert(record(keys, cell * kExtentBlocks, kExtentBlocks, cell == 4 ? 2 : 1));
  EXPECT_EQ(index.drop_segment(SegmentId{2}, StoreMiss::kExpired), 1);
  const PrefixMatch match = index.longest_prefix(keys, false);
  EXPECT_EQ(match.num_blocks, 4 * kExtentBlocks);
  EXPECT_EQ(match.reason, StoreMiss::kExpired);
  index.check_invariants();
}

TEST(ExtentIndex, BranchesShareTheirBeginning) {
  ExtentIndex index;
  auto first = chain(5, 64), second = chain(6, 64);
  std::copy_n(first.begin(), 20, second.begin());  // twenty blocks in common
  store_chain(index, first, 1);
  EXPECT_EQ(index.prefix_blocks(second, false), 20);
  index.insert(record(second, 20, 12, 2));  // the rest of the cell, then the next cell
  index.insert(record(second, 32, 32, 2));
  EXPECT_EQ(index.prefix_blocks(second, false), 64);
  EXPECT_EQ(index.prefix_blocks(first, false), 64);
  const PrefixMatch match = index.longest_prefix(second, false);
  ASSERT_EQ(match.extents.size(), 3u);
  EXPECT_EQ(match.extents[0].num_blocks, 20);
  EXPECT_EQ(match.extents[1].first_block, 20);
}

TEST(ExtentIndex, ALongerExtentReplacesAShorterOfTheSameChain) {
  ExtentIndex index;
  const auto keys = chain(7, 32);
  index.insert(record(keys, 0, 10, 1));
  index.insert(record(keys, 0, 32, 2));
  EXPECT_EQ(index.num_extents(), 1);
  EXPECT_EQ(index.prefix_blocks(keys, false), 32);
  index.insert(record(keys, 0, 5, 3));  // no better than what is there
  EXPECT_EQ(index.num_extents(), 1);
  EXPECT_EQ(index.prefix_blocks(keys, false), 32);
  index.check_invariants();
}

TEST(ExtentIndex, ExactRequestsStopBeforeBlocksBehindAFastReplay) {
  ExtentIndex index;
  const auto keys = chain(8, 64);
  ExtentRecord r = record(keys, 0, 32, 1);
  r.fast_replay_mask = 1u << 9;
  index.insert(r);
  index.insert(record(keys, 32, 32, 1));
  EXPECT_EQ(index.prefix_blocks(keys, false), 64);
  EXPECT_EQ(index.prefix_blocks(keys, true), 9);
  EXPECT_EQ(index.longest_prefix(keys, true).reason, StoreMiss::kReplay);
  EXPECT_EQ(index.prefix_blocks(std::span(keys).first(9), true), 9);
}

TEST(ExtentIndex, KindsDoNotMeet) {
  ExtentIndex index;
  const auto keys = chain(9, 32);
  ExtentRecord tail = record(keys, 3, 1, 1);
  tail.kind = RecordKind::kTail;
  tail.key = record_key(RecordKind::kTail, keys[3]);
  index.insert(tail);
  EXPECT_TRUE(index.find(RecordKind::kTail, keys[3]));
  EXPECT_FALSE(index.find(RecordKind::kFull, keys[3]));
  EXPECT_EQ(index.prefix_blocks(keys, false), 0);
}

// Against a map that does the same the slow way.
TEST(ExtentIndex, AgreesWithAMapUnderRandomChanges) {
  ExtentIndex index;
  std::map<uint64_t, std::pair<ExtentRecord, std::vector<BlockKey>>> model;
  Rng rng(10);
  for (uint64_t step = 0; step < 30'000; ++step) {
    if (rng.below(4) > 0) {
      const auto keys = chain(1000 + step, 1 + static_cast<int64_t>(rng.below(32)));
      const ExtentRecord r = record(keys, 0, static_cast<int64_t>(keys.size()), 1 + rng.below(50));
      index.insert(r);
      model[step] = {r, keys};
    } else if (rng.below(50) == 0) {
      const SegmentId segment{1 + rng.below(50)};
      index.drop_segment(segment, StoreMiss::kExpired);
      std::erase_if(model, [&](const auto& item) { return item.second.first.segment == segment; });
    } else if (!model.empty()) {
      const auto at = std::next(model.begin(), static_cast<int64_t>(rng.below(std::min<uint64_t>(model.size(), 20))));
      EXPECT_TRUE(index.remove(at->second.first, StoreMiss::kChecksum));
      EXPECT_EQ(index.why_absent(at->second.first.key), StoreMiss::kChecksum);
      model.erase(at);
    }
  }
  index.check_invariants();
  EXPECT_EQ(index.num_extents(), static_cast<int64_t>(model.size()));
  for (const auto& [step, item] : model)
    EXPECT_EQ(index.prefix_blocks(item.second, false), static_cast<int64_t>(item.second.size()));
}

}  // namespace deepinfer
