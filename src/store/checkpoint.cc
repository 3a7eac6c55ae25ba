// SPDX-License-Identifier: MIT
// The checkpoint of the index: one page with length and checksum, then segments, records, pins, deleted tenants.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/check.h"
#include "store/bulk_crc32c.h"
#include "store/byte_fields.h"
#include "store/store_recovery.h"

namespace deepinfer {
namespace {

constexpr uint64_t kMagic = 0x31544b5043525453;  // "STRCPKT1"
constexpr int kCopies = 3;                       // survives any two lost devices
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr size_t kSegmentBytes = 8 + 4 + 1 + 8 + 8 + 8 + 8;

template <typename T>
void append(std::vector<uint8_t>& out, T value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

auto fields_of(auto& segment) {
  return std::tie(segment.head.id, segment.head.group, segment.head.ttl_class, segment.head.bucket, segment.head.writer,
                  segment.end, segment.bytes_per_shard);
}

Result<SegmentState> read_segment(FieldReader& in) {
  SegmentState segment{.phase = SegmentState::Phase::kSealed};
  in.get_all(fields_of(segment));
  if (static_cast<int>(segment.head.ttl_class) >= kNumTtlClasses || segment.bytes_per_shard < 0)
    return corruption("checkpoint: a segment's field is out of range");
  return segment;
}

// A count that the bytes left could hold at all.
Result<uint64_t> read_count(FieldReader& in, size_t item_bytes) {
  const uint64_t n = in.get<uint64_t>();
  if (!in.ok() || n > in.rest().size() / item_bytes) return corruption("checkpoint: a count exceeds the file");
  return n;
}

}  // namespace

std::vector<uint8_t> encode_checkpoint(const IndexCheckpoint& checkpoint) {
  std::vector<uint8_t> out(static_cast<size_t>(kPageBytes), 0);
  append(out, static_cast<uint64_t>(checkpoint.segments.size()));
  for (const SegmentState& segment : checkpoint.segments) {
    out.resize(out.size() + kSegmentBytes);
    FieldWriter(std::span<uint8_t>(out).last(kSegmentBytes)).put_all(fields_of(segment));
  }
  append(out, static_cast<uint64_t>(checkpoint.records.size()));
  for (const ExtentRecord& record : checkpoint.records) append_record(out, record);
  append(out, static_cast<uint64_t>(checkpoint.pins.size()));
  for (const BlockKey& key : checkpoint.pins) {
    append(out, key.high);
    append(out, key.low);
  }
  append(out, static_cast<uint64_t>(checkpoint.deleted_tenants.size()));
  for (const uint64_t tenant : checkpoint.deleted_tenants) append(out, tenant);
  const size_t payload = out.size() - static_cast<size_t>(kPageBytes);
  out.resize(round_up(out.size(), static_cast<size_t>(kPageBytes)), 0);
  FieldWriter head(std::span<uint8_t>(out).first(static_cast<size_t>(kPageBytes)));
  head.put(kMagic);
  head.put(kStoreLayout);
  head.put(static_cast<uint64_t>(payload));
  head.put(bulk_crc32c(std::span<const uint8_t>(out).subspan(static_cast<size_t>(kPageBytes), payload)));
  head.put(bulk_crc32c(std::span<const uint8_t>(out).first(head.position())));
  return out;
}

Result<IndexCheckpoint> decode_checkpoint(std::span<const uint8_t> bytes) {
  if (bytes.size() < static_cast<size_t>(kPageBytes)) return corruption("checkpoint: cut short");
  FieldReader head(bytes);
  if (head.get<uint64_t>() != kMagic) return corruption("checkpoint: not one");
  const uint32_t layout = head.get<uint32_t>();
  const uint64_t payload = head.get<uint64_t>();
  const uint32_t payload_crc = head.get<uint32_t>();
  const size_t head_bytes = head.position();
  if (head.get<uint32_t>() != bulk_crc32c(bytes.first(head_bytes)))
    return corruption("checkpoint: checksum of its head");
  if (layout != kStoreLayout) return unimplemented("checkpoint: another layout");
  const auto body = bytes.subspan(static_cast<size_t>(kPageBytes));
  if (payload > body.size() || bulk_crc32c(body.first(payload)) != payload_crc)
    return corruption("checkpoint: checksum");
  FieldReader in(body.first(payload));
  IndexCheckpoint checkpoint;
  ASSIGN_OR_RETURN(const uint64_t num_segments, read_count(in, kSegmentBytes));
  for (uint64_t i = 0; i < num_segments; ++i) {
    ASSIGN_OR_RETURN(SegmentState segment, read_segment(in));
    checkpoint.segments.push_back(std::move(segment));
  }
  ASSIGN_OR_RETURN(const uint64_t num_records,
                   read_count(in, static_cast<size_t>(kRecordBytesMax) - 2 * (kExtentBlocks - 1)));
  checkpoint.records.reserve(num_records);
  for (uint64_t i = 0; i < num_records; ++i) {
    ASSIGN_OR_RETURN(const ExtentRecord record, read_record(in));
    checkpoint.records.push_back(record);
  }
  ASSIGN_OR_RETURN(const uint64_t num_pins, read_count(in, 16));
  for (uint64_t i = 0; i < num_pins; ++i) {
    BlockKey key;
    key.high = in.get<uint64_t>();
    key.low = in.get<uint64_t>();
    checkpoint.pins.push_back(key);
  }
  ASSIGN_OR_RETURN(const uint64_t num_tenants, read_count(in, 8));
  for (uint64_t i = 0; i < num_tenants; ++i) checkpoint.deleted_tenants.push_back(in.get<uint64_t>());
  if (!in.ok() || !in.rest().empty()) return corruption("checkpoint: its length does not fit its content");
  return checkpoint;
}

Status write_checkpoint(const ExtentDevices& io, uint64_t number, const IndexCheckpoint& checkpoint) {
  CHECK(number > 0 && number < kCheckpointIds);
  const std::vector<uint8_t> bytes = encode_checkpoint(checkpoint);
  const int64_t size = static_cast<int64_t>(bytes.size());
  Status last = unavailable("no device");
  int num_written = 0;
  for (size_t i = 0; i < io.devices.size() && num_written < kCopies; ++i) {
    last = {};
    for (int64_t at = size; at > 0 && last.ok();) {  // the head page comes last: half a checkpoint is none
      const int64_t n = at % kPieceBytes == 0 ? kPieceBytes : at % kPieceBytes;
      at -= n;
      PageBuffer piece = PageBuffer::of(n);
      std::memcpy(piece.data(), bytes.data() + at, static_cast<size_t>(n));
      last = write_now(*io.devices[i], SegmentId{number}, at, std::move(piece), n);
    }
    num_written += last.ok();
  }
  if (num_written == 0) return last;
  for (const auto& device : io.devices) {
    auto files = device->list();
    if (!files.ok()) continue;
    for (const SegmentFile& file : files.value())
      if (static_cast<uint64_t>(file.id) < number) (void)device->drop(file.id).ok();
  }
  return {};
}

}  // namespace deepinfer
