// SPDX-License-Identifier: MIT
#include "store/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "store/bulk_crc32c.h"
#include "store/byte_fields.h"

namespace deepinfer {
namespace {

constexpr uint64_t kHeadMagic = 0x31474553525453;  // "STRSEG1"
constexpr uint64_t kSealMagic = 0x314c4145535254;  // "TRSEAL1"
constexpr size_t kCrcAt = static_cast<size_t>(kPageBytes) - 4;

void finish_page(std::span<uint8_t> page) { FieldWriter(page.subspan(kCrcAt)).put(bulk_crc32c(page.first(kCrcAt))); }

Status check_page(FieldReader& in, std::span<const uint8_t> page, uint64_t magic, const char* what) {
  if (page.size() != static_cast<size_t>(kPageBytes)) return corruption(fmt::format("{}: cut short", what));
  if (in.get<uint64_t>() != magic) return not_found(fmt::format("no {} here", what));
  if (FieldReader(page.subspan(kCrcAt)).get<uint32_t>() != bulk_crc32c(page.first(kCrcAt)))
    return corruption(fmt::format("{}: checksum", what));
  if (const uint32_t layout = in.get<uint32_t>(); layout != kStoreLayout)
    return unimplemented(fmt::format("{}: layout {}, this program reads {}", what, layout, kStoreLayout));
  return {};
}

}  // namespace

void encode_segment_head(const SegmentHead& head, std::span<uint8_t> page) {
  CHECK(page.size() == static_cast<size_t>(kPageBytes));
  std::memset(page.data(), 0, page.size());
  FieldWriter out(page);
  out.put(kHeadMagic);
  out.put(kStoreLayout);
  out.put(head.id);
  out.put(head.group);
  out.put(head.ttl_class);
  out.put(head.shard);
  out.put(head.num_data_shards);
  out.put(head.num_parity_shards);
  out.put(head.bucket);
  out.put(head.writer);
  finish_page(page);
}

Result<SegmentHead> decode_segment_head(std::span<const uint8_t> page) {
  FieldReader in(page);
  TRY(check_page(in, page, kHeadMagic, "segment head"));
  SegmentHead head;
  head.id = in.get<SegmentId>();
  head.group = in.get<uint32_t>();
  head.ttl_class = in.get<TtlClass>();
  head.shard = in.get<uint8_t>();
  head.num_data_shards = in.get<uint8_t>();
  head.num_parity_shards = in.get<uint8_t>();
  head.bucket = in.get<int64_t>();
  head.writer = in.get<uint64_t>();
  if (static_cast<int>(head.ttl_class) >= kNumTtlClasses || head.num_data_shards < 1 || head.num_parity_shards > 2 ||
      head.num_data_shards + head.num_parity_shards > 16 || head.shard >= head.num_data_shards + head.num_parity_shards)
    return corruption("segment head: a field is out of range");
  return head;
}

void append_record(std::vector<uint8_t>& out, const ExtentRecord& r) {
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(kRecordBytesMax));
  FieldWriter fields(std::span<uint8_t>(out).subspan(begin));
  fields.put(r.key.high);
  fields.put(r.key.low);
  fields.put(r.segment);
  fields.put(r.offset_pages);
  fields.put(r.block_bytes);
  fields.put(r.fast_replay_mask);
  fields.put(r.num_blocks);
  fields.put(r.kind);
  for (size_t i = 0; i < r.num_blocks; ++i) fields.put(r.fingerprints[i]);
  out.resize(begin + fields.position());
}

Result<ExtentRecord> read_record(FieldReader& in) {
  ExtentRecord r;
  r.key.high = in.get<uint64_t>();
  r.key.low = in.get<uint64_t>();
  r.segment = in.get<SegmentId>();
  r.offset_pages = in.get<uint32_t>();
  r.block_bytes = in.get<uint32_t>();
  r.fast_replay_mask = in.get<uint32_t>();
  r.num_blocks = in.get<uint8_t>();
  r.kind = in.get<RecordKind>();
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
  FieldWriter fields(page);
  fields.put(kSealMagic);
  fields.put(kStoreLayout);
  fields.put(seal.id);
  fields.put(seal.footer_offset);
  fields.put(seal.footer_bytes);
  fields.put(seal.num_extents);
  fields.put(seal.footer_crc);
  finish_page(page);
  return out;
}

Result<SegmentSeal> decode_seal(std::span<const uint8_t> page, int64_t segment_bytes) {
  FieldReader in(page);
  TRY(check_page(in, page, kSealMagic, "segment seal"));
  SegmentSeal seal;
  seal.id = in.get<SegmentId>();
  seal.footer_offset = in.get<uint64_t>();
  seal.footer_bytes = in.get<uint64_t>();
  seal.num_extents = in.get<uint64_t>();
  seal.footer_crc = in.get<uint32_t>();
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
