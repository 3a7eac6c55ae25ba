// SPDX-License-Identifier: MIT
#include "store/extent.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

RowHeader full_header() {
  RowHeader h{.segment = SegmentId{77}, .offset = 8192, .shard = 3, .num_data_shards = 10, .num_parity_shards = 2};
  h.block_bytes = 113'920;
  h.first_block = 64;
  h.fast_replay_mask = 5;
  h.scope = {1, 2, 3};
  for (uint64_t i = 0; i < 32; ++i)
    h.blocks.push_back({.key = {i, i * i}, .first_token = static_cast<TokenId>(i), .last_token = 9, .part_crc = 7});
  return h;
}

}  // namespace

// serving.md 9.5 and decision 26: 364,544 bytes of parts, exactly 89 pages; 368,640 with the header.
TEST(Extent, HasTheSizesOfTheSpecification) {
  EXPECT_EQ(part_bytes_of(113'920, 10), 11'392);
  EXPECT_EQ(32 * part_bytes_of(113'920, 10), 364'544);
  EXPECT_EQ(row_bytes_of(32, 11'392), 368'640);
  EXPECT_EQ(part_bytes_of(1000, 10), 128);  // 100 rounded up to 64
  EXPECT_EQ(part_bytes_of(1, 10), 64);
}

TEST(Extent, HeaderComesBackAsItWent) {
  const RowHeader h = full_header();
  std::vector<uint8_t> page(kPageBytes);
  encode_row_header(h, page);
  const auto back = decode_row_header(page);
  ASSERT_TRUE(back.ok()) << back.status().message();
  const RowHeader& b = back.value();
  EXPECT_EQ(b.segment, h.segment);
  EXPECT_EQ(b.offset, h.offset);
  EXPECT_EQ(b.shard, h.shard);
  EXPECT_EQ(b.scope, h.scope);
  EXPECT_EQ(b.block_bytes, h.block_bytes);
  EXPECT_EQ(b.fast_replay_mask, h.fast_replay_mask);
  ASSERT_EQ(b.num_blocks(), 32);
  EXPECT_EQ(b.blocks[31].key, h.blocks[31].key);
  EXPECT_EQ(b.blocks[31].part_crc, 7u);
}

TEST(Extent, AFlippedBitAnywhereInTheHeaderIsFound) {
  std::vector<uint8_t> page(kPageBytes);
  encode_row_header(full_header(), page);
  for (size_t bit = 0; bit < page.size() * 8; ++bit) {
    page[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    EXPECT_FALSE(decode_row_header(page).ok()) << bit;
    page[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
  }
}

TEST(Extent, AnythingElseIsNoHeader) {
  EXPECT_EQ(decode_row_header(std::vector<uint8_t>(4096, 0)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(decode_row_header(std::vector<uint8_t>(100, 0)).status().code(), StatusCode::kCorruption);
}

TEST(Extent, RecordsOfDifferentKindsHaveDifferentKeys) {
  const BlockKey key{1, 2};
  EXPECT_EQ(record_key(RecordKind::kBlocks, key), key);
  EXPECT_NE(record_key(RecordKind::kTail, key), key);
  EXPECT_NE(record_key(RecordKind::kTail, key), record_key(RecordKind::kFull, key));
}

TEST(Extent, ScopesDifferByTenantModelAndFormat) {
  const KeyScope scope{.tenant_salt = "a", .model_revision = "m", .cache_format = 1};
  KeyScope other = scope;
  other.tenant_salt = "b";
  EXPECT_NE(scope_tags(scope).tenant, scope_tags(other).tenant);
  EXPECT_EQ(scope_tags(scope).model, scope_tags(other).model);
  other.model_revision = "a";
  EXPECT_NE(scope_tags(other).model, scope_tags(scope).model);
}

}  // namespace deepinfer
