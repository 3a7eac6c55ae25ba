// SPDX-License-Identifier: MIT
// A segment is one append-only file a shard, of one placement group, one lifetime class and one hour; rows stand at the
// same offsets on all shards, so (segment, offset, length) addresses all of them. Its writer seals it by size or time:
//
//   head page [4096] | row | row | ... | footer, in whole pages | seal page [4096]
//
// The seal says where the footer is and carries its checksum. An unsealed segment is read by walking the row headers:
// each names its own segment and offset, so after a damaged row the walk finds the next by looking at every page.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "store/index.h"

namespace deepinfer {

inline constexpr int64_t kSegmentBytesMax = int64_t{1} << 30;  // of rows, per shard
inline constexpr int64_t kFooterExtentsMax = kSegmentBytesMax / kPageBytes;

struct SegmentHead {
  SegmentId id{};
  uint32_t group = 0;
  TtlClass ttl_class = TtlClass::kChat;
  uint8_t shard = 0, num_data_shards = 1, num_parity_shards = 0;
  int64_t bucket = 0;   // hours since 1970 by the writer's clock
  uint64_t writer = 0;  // who appends to it; a segment has one writer
  bool operator==(const SegmentHead&) const = default;
};

void encode_segment_head(const SegmentHead& head, std::span<uint8_t> page);
// Errors: not_found (no head), unimplemented (another layout version), corruption.
Result<SegmentHead> decode_segment_head(std::span<const uint8_t> page);

// What a footer holds of one extent: what the index needs, and this shard's checksums.
struct FooterExtent {
  ExtentRecord record;
  std::vector<uint32_t> part_crcs;  // one a block
};

struct SegmentSeal {
  SegmentId id{};
  uint64_t footer_offset = 0, footer_bytes = 0, num_extents = 0;
  uint32_t footer_crc = 0;
};

// Footer and seal page, to be written at `offset` (the end of the rows).
std::vector<uint8_t> encode_footer(SegmentId id, uint64_t offset, std::span<const FooterExtent> extents);
// Errors: not_found (not a seal: the segment is unsealed), unimplemented, corruption.
Result<SegmentSeal> decode_seal(std::span<const uint8_t> page, int64_t segment_bytes);
Result<std::vector<FooterExtent>> decode_footer(const SegmentSeal& seal, std::span<const uint8_t> bytes);

// Records in the form of footer and checkpoint, without the checksums: 38 + 2 n bytes.
inline constexpr int64_t kRecordBytesMax = 38 + 2 * kExtentBlocks;
void append_record(std::vector<uint8_t>& out, const ExtentRecord& record);
class FieldReader;
// Errors: corruption (a field is out of range, or the bytes end).
Result<ExtentRecord> read_record(FieldReader& in);

}  // namespace deepinfer
