// SPDX-License-Identifier: MIT
#include "store/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "store/bulk_crc32c.h"
#include "store/record_page.h"

namespace deepinfer {
namespace {

constexpr uint64_t kHeadMagic = 0x31474553525453;  // "STRSEG1"
constexpr uint64_t kSealMagic = 0x314c4145535254;  // "TRSEAL1"

// What stands in the pages and records, in this order, for both directions.
auto fields_of(auto& h) {
  return std::tie(h.id, h.group, h.ttl_class, h.shard, h.num_data_shards, h.num_parity_shards, h.bucket, h.writer);
}
auto seal_fields_of(auto& s) { return std::tie(s.id, s.footer_offset, s.footer_bytes, s.num_extents, s.footer_crc); }
auto record_fields_of(auto& r) {
  return std::tie(r.key.high, r.key.low, r.segment, r.offset_pages, r.block_bytes, r.fast_replay_mask, r.num_blocks,
                  r.kind);
}

}  // namespace

void encode_segment_head(const SegmentHead& head, std::span<uint8_t> page) {
  FieldWriter out = begin_page(page, kHeadMagic);
  out.put_all(fields_of(head));
  finish_page(page);
}

Result<SegmentHead> decode_segment_head(std::span<const uint8_t> page) {
  ASSIGN_OR_RETURN(FieldReader in, open_page(page, kHeadMagic, "segment head"));
  SegmentHead head;
  in.get_all(fields_of(head));
  if (static_cast<int>(head.ttl_class) >= kNumTtlClasses || head.num_data_shards < 1 || head.num_parity_shards > 2 ||
      head.num_data_shards + head.num_parity_shards > 16 || head.shard >= head.num_data_shards + head.num_parity_shards)
    return corruption("segment head: a field is out of range");
  return head;
}

void append_record(std::vector<uint8_t>& out, const ExtentRecord& r) {
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(kRecordBytesMax));
  FieldWriter fields(std::span<uint8_t>(out).subspan(begin));
  fields.put_all(record_fields_of(r));
  for (size_t i = 0; i < r.num_blocks; ++i) fields.put(r.fingerprints[i]);
  out.resize(begin + fields.position());
}

Result<ExtentRecord> read_record(FieldReader& in) {
  ExtentRecord r;
  in.get_all(record_fields_of(r));
  if (!in.ok()) return corruption("extent record: cut short");
  if (r.num_blocks < 1 || r.num_blocks > kExtentBlocks || static_cast<int>(r.kind) >= kNumRecordKinds ||
      r.block_bytes < 1 || r.block_bytes > kBlockBytesMax)
    return corruption("extent record: a field is out of range");
  for (size_t i = 0; i < r.num_blocks; ++i) r.fingerprints[i] = in.get<uint16_t>();
  if (!in.ok()) return corruption("extent record: cut short");
  return r;
}

std::vector<uint8_t> encode_footer(SegmentId id, uint64_t offset, std::span<const FooterExtent> extents) {
  std::vector<uint8_t> out;
  for (const FooterExtent& extent : extents) {
    append_record(out, extent.record);
    CHECK(extent.part_crcs.size() == extent.record.num_blocks);
    const auto* crcs = reinterpret_cast<const uint8_t*>(extent.part_crcs.data());
    out.insert(out.end(), crcs, crcs + 4 * extent.part_crcs.size());
  }
  const SegmentSeal seal{id, offset, out.size(), extents.size(), bulk_crc32c(out)};
  const size_t seal_at = round_up(out.size(), static_cast<size_t>(kPageBytes));
  out.resize(seal_at + static_cast<size_t>(kPageBytes), 0);
  const auto page = std::span(out).subspan(seal_at);
  begin_page(page, kSealMagic).put_all(seal_fields_of(seal));
  finish_page(page);
  return out;
}

Result<SegmentSeal> decode_seal(std::span<const uint8_t> page, int64_t segment_bytes) {
  ASSIGN_OR_RETURN(FieldReader in, open_page(page, kSealMagic, "segment seal"));
  SegmentSeal seal;
  in.get_all(seal_fields_of(seal));
  const uint64_t end = static_cast<uint64_t>(std::max<int64_t>(segment_bytes, 0));
  if (seal.footer_offset > end || seal.footer_bytes > end - seal.footer_offset ||
      seal.num_extents > static_cast<uint64_t>(kFooterExtentsMax))
    return corruption("segment seal: the footer lies outside the segment");
  return seal;
}

Result<std::vector<FooterExtent>> decode_footer(const SegmentSeal& seal, std::span<const uint8_t> bytes) {
  if (bytes.size() != seal.footer_bytes || bulk_crc32c(bytes) != seal.footer_crc)
    return corruption("segment footer: checksum");
  std::vector<FooterExtent> extents;
  FieldReader in(bytes);
  for (uint64_t i = 0; i < seal.num_extents; ++i) {
    FooterExtent extent;
    ASSIGN_OR_RETURN(extent.record, read_record(in));
    if (extent.record.segment != seal.id) return corruption("segment footer: an extent of another segment");
    for (int b = 0; b < extent.record.num_blocks; ++b) extent.part_crcs.push_back(in.get<uint32_t>());
    if (!in.ok()) return corruption("segment footer: cut short");
    extents.push_back(std::move(extent));
  }
  if (!in.rest().empty()) return corruption("segment footer: bytes behind the last extent");
  return extents;
}

}  // namespace deepinfer
