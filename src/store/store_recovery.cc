// SPDX-License-Identifier: MIT
#include "store/store_recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "store/bulk_crc32c.h"
#include "store/byte_fields.h"

namespace deepinfer {
namespace {

struct Copy {  // of a segment, on one device
  int device = 0;
  int64_t num_bytes = 0;
};
using Copies = std::map<SegmentId, std::vector<Copy>>;

bool is_checkpoint(SegmentId id) { return static_cast<uint64_t>(id) < kCheckpointIds; }

Result<RowHeader> row_header_at(ShardDevice& device, SegmentId id, int64_t offset) {
  ASSIGN_OR_RETURN(const PageBuffer page, read_now(device, id, offset, kPageBytes));
  ASSIGN_OR_RETURN(RowHeader header, decode_row_header(page.bytes(0, kPageBytes)));
  if (header.segment != id || static_cast<int64_t>(header.offset) != offset)
    return corruption("row header: of another place");
  return header;
}

class Recovery {
 public:
  Recovery(const ExtentDevices& io, std::span<const PlacementGroup> groups, ExtentIndex& index)
      : io_(io), groups_(groups), index_(index) {}

  Result<Recovered> run() {
    TRY(list_all());
    load_checkpoint();
    for (const auto& [id, copies] : copies_)
      if (!known_.contains(id)) find(id, copies);
    out_.report.num_extents = index_.num_extents();
    out_.report.num_segments = static_cast<int64_t>(out_.segments.size());
    return std::move(out_);
  }

 private:
  Status list_all() {
    const auto num_devices = static_cast<int64_t>(io_.devices.size());
    Status last;
    for (int64_t i = 0; i < num_devices; ++i) {
      auto files = io_.devices[static_cast<size_t>(i)]->list();
      if (!files.ok()) {
        last = files.status();
        ++out_.report.num_devices_silent;
        continue;
      }
      for (const SegmentFile& file : files.value()) {
        if (is_checkpoint(file.id)) {
          checkpoints_[file.id].push_back({static_cast<int>(i), file.num_bytes});
          out_.checkpoint_number = std::max(out_.checkpoint_number, static_cast<uint64_t>(file.id));
        } else {
          copies_[file.id].push_back({static_cast<int>(i), file.num_bytes});
        }
      }
    }
    if (num_devices - out_.report.num_devices_silent < io_.code.num_data_shards())
      return unavailable(fmt::format("{} of {} devices answer, decoding needs {}: {}",
                                     num_devices - out_.report.num_devices_silent, num_devices,
                                     io_.code.num_data_shards(), last.message()));
    return {};
  }

  Result<IndexCheckpoint> read_checkpoint(SegmentId id, const Copy& copy) {
    ShardDevice& device = *io_.devices[static_cast<size_t>(copy.device)];
    constexpr int64_t kPiece = int64_t{4} << 20;
    std::vector<uint8_t> bytes;
    for (int64_t at = 0; at < copy.num_bytes; at += kPiece) {
      const int64_t n = std::min(kPiece, copy.num_bytes - at) / kPageBytes * kPageBytes;
      ASSIGN_OR_RETURN(const PageBuffer piece, read_now(device, id, at, n));
      bytes.insert(bytes.end(), piece.data(), piece.data() + n);
    }
    return decode_checkpoint(bytes);
  }

  // The newest that is whole. Segments that fewer devices hold than decoding needs are not taken from it.
  void load_checkpoint() {
    for (auto newest = checkpoints_.rbegin(); newest != checkpoints_.rend(); ++newest)
      for (const Copy& copy : newest->second) {
        auto checkpoint = read_checkpoint(newest->first, copy);
        if (!checkpoint.ok()) continue;
        use(std::move(checkpoint).value());
        return;
      }
  }

  void use(IndexCheckpoint checkpoint) {
    std::unordered_set<uint64_t> taken;
    for (SegmentState& segment : checkpoint.segments) {
      const auto at = copies_.find(segment.head.id);
      if (at == copies_.end() || !enough(at->second) || segment.head.group >= groups_.size()) continue;
      taken.insert(static_cast<uint64_t>(segment.head.id));
      known_.insert({segment.head.id, true});
      ++out_.report.num_from_checkpoint;
      out_.segments.push_back(std::move(segment));
    }
    for (const ExtentRecord& record : checkpoint.records)
      if (taken.contains(static_cast<uint64_t>(record.segment))) index_.insert(record);
    out_.pins = std::move(checkpoint.pins);
    out_.deleted_tenants = std::move(checkpoint.deleted_tenants);
  }

  // Devices that are silent now may hold it too.
  bool enough(const std::vector<Copy>& copies) const {
    return static_cast<int64_t>(copies.size()) + out_.report.num_devices_silent >= io_.code.num_data_shards();
  }

  void find(SegmentId id, const std::vector<Copy>& copies) {
    SegmentState segment;
    segment.phase = SegmentState::Phase::kSealed;
    const bool readable = read_head(id, copies, segment.head);
    if (!readable || segment.head.num_data_shards != io_.code.num_data_shards() ||
        segment.head.num_parity_shards != io_.code.num_parity_shards() || segment.head.group >= groups_.size()) {
      ++out_.report.num_unreadable;  // its files stay: another program or layout may know them
      return;
    }
    for (const Copy& copy : copies) segment.end = std::max(segment.end, round_up(copy.num_bytes, kPageBytes));
    if (enough(copies) && read_footer(id, copies)) {
      ++out_.report.num_from_footers;
    } else {
      walk(id, copies, segment);
      ++out_.report.num_walked;
    }
    segment.bytes_per_shard = segment.end;
    out_.segments.push_back(std::move(segment));
  }

  bool read_head(SegmentId id, const std::vector<Copy>& copies, SegmentHead& head) {
    for (const Copy& copy : copies) {
      auto page = read_now(*io_.devices[static_cast<size_t>(copy.device)], id, 0, kPageBytes);
      if (!page.ok()) continue;
      auto decoded = decode_segment_head(page.value().bytes(0, kPageBytes));
      if (!decoded.ok() || decoded.value().id != id) continue;
      head = decoded.value();
      head.shard = 0;
      return true;
    }
    return false;
  }

  Result<std::vector<FooterExtent>> footer_of(SegmentId id, const Copy& copy) {
    ShardDevice& device = *io_.devices[static_cast<size_t>(copy.device)];
    if (copy.num_bytes < 2 * kPageBytes || copy.num_bytes % kPageBytes != 0) return not_found("no seal");
    ASSIGN_OR_RETURN(const PageBuffer page, read_now(device, id, copy.num_bytes - kPageBytes, kPageBytes));
    ASSIGN_OR_RETURN(const SegmentSeal seal, decode_seal(page.bytes(0, kPageBytes), copy.num_bytes));
    if (seal.id != id || seal.footer_offset % kPageBytes != 0) return corruption("segment seal: of another segment");
    if (seal.footer_bytes == 0) return decode_footer(seal, {});
    const int64_t n = round_up(static_cast<int64_t>(seal.footer_bytes), kPageBytes);
    ASSIGN_OR_RETURN(const PageBuffer bytes, read_now(device, id, static_cast<int64_t>(seal.footer_offset), n));
    return decode_footer(seal, bytes.bytes(0, static_cast<int64_t>(seal.footer_bytes)));
  }

  bool read_footer(SegmentId id, const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) {
      auto extents = footer_of(id, copy);
      if (!extents.ok()) continue;
      for (const FooterExtent& extent : extents.value()) index_.insert(extent.record);
      return true;
    }
    return false;
  }

  // Row headers of every copy; an extent counts when as many shards have its row as decoding needs.
  void walk(SegmentId id, const std::vector<Copy>& copies, const SegmentState& segment) {
    struct Found {
      RowHeader header;
      int num_shards = 0;
      std::vector<std::vector<uint32_t>> part_crcs;
    };
    std::map<uint64_t, Found> rows;
    for (const Copy& copy : copies)
      walk_copy(id, copy, [&](RowHeader header) {
        Found& found = rows[header.offset];
        found.part_crcs.resize(static_cast<size_t>(io_.code.num_shards()), std::vector<uint32_t>(header.blocks.size()));
        std::vector<uint32_t>& crcs = found.part_crcs[header.shard];
        crcs.clear();
        for (const BlockStamp& block : header.blocks) crcs.push_back(block.part_crc);
        ++found.num_shards;
        if (found.num_shards == 1) found.header = std::move(header);
      });
    std::vector<std::vector<FooterExtent>> footers(static_cast<size_t>(io_.code.num_shards()));
    for (auto& [offset, found] : rows) {
      if (found.num_shards + out_.report.num_devices_silent < io_.code.num_data_shards()) continue;
      const ExtentRecord record = record_of(found.header);
      for (size_t shard = 0; shard < footers.size(); ++shard)
        footers[shard].push_back({record, found.part_crcs[shard]});
      index_.insert(record);
    }
    write_to_group(io_, groups_[segment.head.group], id, segment.end, [&](int shard) {
      return encode_footer(id, static_cast<uint64_t>(segment.end), footers[static_cast<size_t>(shard)]);
    });
  }

  void walk_copy(SegmentId id, const Copy& copy, const std::function<void(RowHeader)>& found) {
    ShardDevice& device = *io_.devices[static_cast<size_t>(copy.device)];
    for (int64_t at = kPageBytes; at + kPageBytes <= copy.num_bytes;) {
      auto header = row_header_at(device, id, at);
      int64_t step = kPageBytes;
      if (header.ok() && header.value().num_data_shards == io_.code.num_data_shards() &&
          header.value().shard < io_.code.num_shards()) {
        const int64_t part = part_bytes_of(header.value().block_bytes, io_.code.num_data_shards());
        const int64_t row = row_bytes_of(header.value().num_blocks(), part);
        if (at + row <= copy.num_bytes) {  // else it was cut off by the crash
          found(std::move(header).value());
          step = row;
        }
      }
      at += step;
    }
  }

  const ExtentDevices& io_;
  const std::span<const PlacementGroup> groups_;
  ExtentIndex& index_;
  Copies copies_, checkpoints_;
  std::map<SegmentId, bool> known_;
  Recovered out_;
};

}  // namespace

Result<Recovered> recover_store(const ExtentDevices& io, std::span<const PlacementGroup> groups, ExtentIndex& index) {
  return Recovery(io, groups, index).run();
}

}  // namespace deepinfer
