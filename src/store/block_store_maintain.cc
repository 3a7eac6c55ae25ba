// SPDX-License-Identifier: MIT
// Upkeep: what has expired goes, what is wanted and old is copied forward, what was found damaged is mended, full
// segments are sealed, and the index is checkpointed.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/log.h"
#include "store/block_store.h"
#include "store/store_recovery.h"

namespace deepinfer {
namespace {

constexpr int64_t kMaintainEveryNs = kSecondNs;
constexpr int64_t kFreeShareMin = 50;  // without a capacity of its own the store leaves others a fiftieth of each disk
constexpr size_t kRenewalsTogether = 64;  // extents copied or mended in one go, so that the disks stay free for readers

}  // namespace

void BlockStore::run_maintainer() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      idle_.wait_for(lock, std::chrono::nanoseconds(kMaintainEveryNs), [this] { return stopping_; });
      if (stopping_) return;
    }
    maintain();
  }
}

void BlockStore::maintain() {
  const std::lock_guard only_one(maintaining_);
  {
    const std::lock_guard lock(mutex_);
    segments_.close_older_than(options_.ttl.bucket_of(clock_.unix_ns()));
  }
  renew_some();
  repair_some();
  seal_ready();
  expire();
  make_room();
  checkpoint_if_due(false);
}

void BlockStore::drop_segment(SegmentId id, StoreMiss why) {
  uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const SegmentState* const segment = segments_.find(id);
    if (!segment) return;
    number = segment->head.group;
    index_.drop_segment(id, why);  // before the bytes: nobody is promised what is about to go
    segments_.erase(id);
  }
  for (const int device : group(number)) (void)devices_[static_cast<size_t>(device)]->drop(id).ok();
}

void BlockStore::expire() {
  std::vector<SegmentId> due;
  std::vector<ExtentRecord> pinned;
  {
    const std::lock_guard lock(mutex_);
    const int64_t now = clock_.unix_ns();
    for (const auto& [id, segment] : segments_.all()) {
      if (!options_.ttl.is_expired(segment.head.ttl_class, segment.head.bucket, now) || segment.num_pending > 0)
        continue;
      due.push_back(id);
      if (pins_.empty()) continue;
      for (const ExtentRecord& record : index_.records_of(id))
        if (pins_.contains(record.key)) pinned.push_back(record);
    }
    stats_.num_segments_expired += static_cast<int64_t>(due.size());
  }
  for (const ExtentRecord& record : pinned) rewrite(record);
  for (const SegmentId id : due) drop_segment(id, StoreMiss::kExpired);
}

// Over-full: the segment that has had most of its time goes first, until what is left fits (serving.md 9.9).
void BlockStore::make_room() {
  size_t num_rounds = 0;
  if (options_.capacity_bytes == 0) {
    const auto reports = devices();
    const bool scarce = std::any_of(reports.begin(), reports.end(), [](const StoreDeviceReport& report) {
      return report.space.total_bytes > 0 && report.space.free_bytes < report.space.total_bytes / kFreeShareMin;
    });
    const std::lock_guard lock(mutex_);
    disk_full_ |= scarce;
  }
  {
    const std::lock_guard lock(mutex_);
    num_rounds = segments_.all().size();  // pins alone may be more than fits: then it stays over-full
  }
  for (; num_rounds > 0; --num_rounds) {
    std::optional<SegmentId> victim;
    std::vector<ExtentRecord> pinned;
    {
      const std::lock_guard lock(mutex_);
      std::vector<SegmentAge> ages;
      std::vector<SegmentId> ids;
      for (const auto& [id, segment] : segments_.all()) {
        if (segment.num_pending > 0) continue;
        ages.push_back({segment.head.ttl_class, segment.head.bucket});
        ids.push_back(id);
      }
      const int64_t now = clock_.unix_ns();
      const auto oldest = oldest_segment(ages, options_.ttl, now);
      if (!oldest) return;
      const double share = std::max(0.0, options_.ttl.age_share(ages[*oldest].ttl_class, ages[*oldest].bucket, now));
      effective_.observe_oldest(share);
      const bool over = options_.capacity_bytes > 0 && segments_.num_bytes() > options_.capacity_bytes;
      if (!over && !disk_full_) return;
      disk_full_ = false;
      victim = ids[*oldest];
      effective_.dropped_early(share);
      ++stats_.num_segments_dropped_early;
      for (const ExtentRecord& record : index_.records_of(*victim))
        if (pins_.contains(record.key)) pinned.push_back(record);
    }
    for (const ExtentRecord& record : pinned) rewrite(record);
    drop_segment(*victim, StoreMiss::kExpired);
  }
}

ExtentReadResult BlockStore::read_whole(const ExtentRecord& record, std::vector<uint8_t>& bytes) const {
  ExtentRead read{.record = record, .whole = true};
  {
    const std::lock_guard lock(mutex_);
    const SegmentState* const segment = segments_.find(record.segment);
    if (!segment) return {.reason = StoreMiss::kExpired};
    read.group = group(segment->head.group);
  }
  bytes.resize(size_t{record.num_blocks} * record.block_bytes);
  read.out = bytes;
  return std::move(read_extents(io(), {&read, 1}).front());
}

// Copies an extent into the current segment of its class, bytes and stamps as they are.
bool BlockStore::rewrite(const ExtentRecord& record) {
  std::vector<uint8_t> bytes;
  ExtentReadResult result = read_whole(record, bytes);
  if (result.reason != StoreMiss::kNone) return false;
  {
    const std::lock_guard lock(mutex_);
    if (deleted_tenants_.contains(result.header->scope.tenant))
      return false;  // a pin holds nothing for who is forgotten
  }
  return append_again(std::move(*result.header), std::move(bytes));
}

void BlockStore::renew_some() {
  std::vector<Renewal> renewals;
  {
    const std::lock_guard lock(mutex_);
    const size_t n = std::min(renewals_.size(), kRenewalsTogether);
    renewals.assign(renewals_.begin(), renewals_.begin() + static_cast<int64_t>(n));
    renewals_.erase(renewals_.begin(), renewals_.begin() + static_cast<int64_t>(n));
    scheduled_.clear();  // what is still wanted is noticed again
    for (const Renewal& renewal : renewals_) scheduled_.insert(place_of(renewal.record));
    for (const Repair& repair : repairs_) scheduled_.insert(place_of(repair.record));
  }
  for (const Renewal& renewal : renewals) {
    const bool copied = rewrite(renewal.record);
    const std::lock_guard lock(mutex_);
    stats_.num_copied_forward += copied;
  }
}

void BlockStore::repair_some() {
  std::vector<Repair> repairs;
  {
    const std::lock_guard lock(mutex_);
    const size_t n = std::min(repairs_.size(), kRenewalsTogether);
    repairs.assign(repairs_.begin(), repairs_.begin() + static_cast<int64_t>(n));
    repairs_.erase(repairs_.begin(), repairs_.begin() + static_cast<int64_t>(n));
  }
  for (const Repair& repair : repairs) {
    const bool mended = mend(repair.record, repair.shards);
    const std::lock_guard lock(mutex_);
    stats_.num_repaired += mended;
  }
}

// Writes rows that were damaged or missing again, at their own place.
bool BlockStore::mend(const ExtentRecord& record, uint32_t shards) {
  std::vector<uint8_t> bytes;
  ExtentReadResult result = read_whole(record, bytes);
  if (result.reason != StoreMiss::kNone) return false;
  RowHeader header = std::move(*result.header);
  std::vector<std::vector<uint32_t>> part_crcs;
  std::vector<PageBuffer> rows = encode_rows(code_, header, bytes, part_crcs);
  const int64_t row = row_bytes_of(header.num_blocks(), part_bytes_of(header.block_bytes, code_.num_data_shards()));
  PlacementGroup devices;
  {
    const std::lock_guard lock(mutex_);
    const SegmentState* const segment = segments_.find(record.segment);
    if (!segment) return false;
    devices = group(segment->head.group);
  }
  bool all = true;
  for (size_t shard = 0; shard < devices.size(); ++shard) {
    if (!(shards >> shard & 1)) continue;
    ShardDevice& device = *devices_[static_cast<size_t>(devices[shard])];
    all &= write_now(device, record.segment, static_cast<int64_t>(header.offset), std::move(rows[shard]), row).ok();
  }
  return all;
}

void BlockStore::seal_ready() {
  std::vector<SegmentState> ready;
  {
    const std::lock_guard lock(mutex_);
    for (const SegmentId id : segments_.ready_to_seal()) ready.push_back(*segments_.find(id));
  }
  for (const SegmentState& segment : ready) {
    int64_t footer_bytes = 0;
    const int num_acks = write_to_group(io(), group(segment.head.group), segment.head.id, segment.end, [&](int shard) {
      auto footer = encode_footer(segment.head.id, static_cast<uint64_t>(segment.end),
                                  segment.footers[static_cast<size_t>(shard)]);
      footer_bytes = static_cast<int64_t>(footer.size());
      return footer;
    });
    if (num_acks == 0) log_line(LogLevel::kWarning, "store: no shard took the footer of a segment");
    const std::lock_guard lock(mutex_);
    if (segments_.find(segment.head.id)) segments_.sealed(segment.head.id, segment.end + footer_bytes);
  }
}

void BlockStore::checkpoint_if_due(bool now) {
  IndexCheckpoint checkpoint;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_.monotonic_ns();
    if (!now && now_ns - last_checkpoint_ns_ < options_.checkpoint_every_ns) return;
    last_checkpoint_ns_ = now_ns;
    for (const auto& [id, segment] : segments_.all()) {
      if (segment.phase != SegmentState::Phase::kSealed) continue;
      checkpoint.segments.push_back(segment);
      for (const ExtentRecord& record : index_.records_of(id)) checkpoint.records.push_back(record);
    }
    checkpoint.pins.assign(pins_.begin(), pins_.end());
    checkpoint.deleted_tenants.assign(deleted_tenants_.begin(), deleted_tenants_.end());
    number = checkpoint_number_ = checkpoint_number_ % (kCheckpointIds - 1) + 1;
  }
  if (const Status status = write_checkpoint(io(), number, checkpoint); !status.ok())
    log_line(LogLevel::kWarning, "store: no checkpoint: " + status.message());
}

void BlockStore::scrub_extent(const ExtentRecord& record, ScrubReport& report) {
  PlacementGroup devices;
  {
    const std::lock_guard lock(mutex_);
    const SegmentState* const segment = segments_.find(record.segment);
    if (!segment) return;
    devices = group(segment->head.group);
  }
  const int64_t part = part_bytes_of(record.block_bytes, code_.num_data_shards());
  const int64_t row = row_bytes_of(record.num_blocks, part);
  const int64_t offset = int64_t{record.offset_pages} * kPageBytes;
  uint32_t bad = 0;
  for (size_t shard = 0; shard < devices.size(); ++shard) {
    const auto bytes = read_now(*devices_[static_cast<size_t>(devices[shard])], record.segment, offset, row);
    const bool missing = !bytes.ok();
    const bool whole = bytes.ok() && row_is_whole(code_, record, static_cast<int>(shard), bytes.value());
    report.num_missing_shards += missing;
    report.num_damaged_shards += !missing && !whole;
    if (!whole) bad |= 1u << shard;
  }
  ++report.num_extents;
  report.num_blocks += record.num_blocks;
  if (!bad) return;
  if (std::popcount(bad) <= code_.num_parity_shards()) {
    const bool mended = mend(record, bad);
    const std::lock_guard lock(mutex_);
    stats_.num_repaired += mended;
    return;
  }
  ++report.num_lost_extents;
  const std::lock_guard lock(mutex_);
  index_.remove(record, StoreMiss::kChecksum);
}

ScrubReport BlockStore::scrub(const std::function<bool(int64_t done, int64_t all)>& go_on) {
  std::vector<ExtentRecord> records;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, segment] : segments_.all())
      for (const ExtentRecord& record : index_.records_of(id)) records.push_back(record);
  }
  ScrubReport report;
  for (const ExtentRecord& record : records) {
    if (!go_on(report.num_extents, static_cast<int64_t>(records.size()))) break;
    scrub_extent(record, report);
  }
  return report;
}

}  // namespace deepinfer
