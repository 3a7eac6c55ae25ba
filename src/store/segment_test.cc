// SPDX-License-Identifier: MIT
#include "store/segment.h"

#include <gtest/gtest.h>

#include "store/byte_fields.h"

namespace deepinfer {
namespace {

FooterExtent extent(uint64_t i) {
  FooterExtent e;
  e.record = {.key = {i, ~i}, .segment = SegmentId{9}, .offset_pages = static_cast<uint32_t>(i), .block_bytes = 100};
  e.record.num_blocks = static_cast<uint8_t>(1 + i % 32);
  for (size_t b = 0; b < e.record.num_blocks; ++b) {
    e.record.fingerprints[b] = static_cast<uint16_t>(i * 31 + b);
    e.part_crcs.push_back(static_cast<uint32_t>(i + b));
  }
  return e;
}

}  // namespace

TEST(Segment, HeadComesBackAndEveryFlippedBitIsFound) {
  const SegmentHead head{.id = SegmentId{5},
                         .group = 3,
                         .ttl_class = TtlClass::kAgent,
                         .shard = 11,
                         .num_data_shards = 10,
                         .num_parity_shards = 2,
                         .bucket = 480'000,
                         .writer = 8};
  std::vector<uint8_t> page(kPageBytes);
  encode_segment_head(head, page);
  const auto back = decode_segment_head(page);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value(), head);
  for (size_t bit = 0; bit < page.size() * 8; bit += 3) {
    page[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    EXPECT_FALSE(decode_segment_head(page).ok()) << bit;
    page[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
  }
}

TEST(Segment, FooterComesBackAndEveryFlippedBitIsFound) {
  std::vector<FooterExtent> extents;
  for (uint64_t i = 0; i < 100; ++i) extents.push_back(extent(i));
  std::vector<uint8_t> bytes = encode_footer(SegmentId{9}, 40'960, extents);
  ASSERT_EQ(bytes.size() % kPageBytes, 0u);
  const auto decoded = [&]() -> Result<std::vector<FooterExtent>> {
    ASSIGN_OR_RETURN(const SegmentSeal seal,
                     decode_seal(std::span(bytes).last(kPageBytes), 40'960 + static_cast<int64_t>(bytes.size())));
    return decode_footer(seal, std::span(bytes).first(std::min(bytes.size(), size_t{seal.footer_bytes})));
  };
  const auto back = decoded();
  ASSERT_TRUE(back.ok()) << back.status().message();
  ASSERT_EQ(back.value().size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(back.value()[i].record, extents[i].record);
    EXPECT_EQ(back.value()[i].part_crcs, extents[i].part_crcs);
  }
  const size_t used = 100 * 38;  // at least; the zeros up to the next page carry nothing
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 5) {
    if (bit / 8 > used && bit / 8 < bytes.size() - kPageBytes) continue;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    EXPECT_FALSE(decoded().ok()) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
  }
}

TEST(Segment, ASealOutsideTheFileIsRefused) {
  const std::vector<FooterExtent> extents = {extent(1)};
  const auto bytes = encode_footer(SegmentId{9}, 1 << 20, extents);
  EXPECT_TRUE(decode_seal(std::span(bytes).last(kPageBytes), (1 << 20) + 8192).ok());
  EXPECT_FALSE(decode_seal(std::span(bytes).last(kPageBytes), 1000).ok());
}

TEST(Segment, ARowHeaderIsNoSealAndNoHead) {
  std::vector<uint8_t> page(kPageBytes);
  RowHeader header;
  header.block_bytes = 10;
  header.blocks.resize(1);
  encode_row_header(header, page);
  EXPECT_EQ(decode_seal(page, 1 << 20).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(decode_segment_head(page).status().code(), StatusCode::kNotFound);
}

}  // namespace deepinfer
