// SPDX-License-Identifier: MIT
#include "store/segment_table.h"

#include "base/check.h"

namespace deepinfer {
namespace {
constexpr uint64_t kCounterMask = 0xffffff;
}

SegmentTable::SegmentTable(uint64_t writer, int num_data_shards, int num_parity_shards, int64_t segment_bytes_max)
    : writer_(writer),
      num_data_shards_(num_data_shards),
      num_parity_shards_(num_parity_shards),
      segment_bytes_max_(segment_bytes_max) {
  CHECK((writer & ~kCounterMask) != 0);  // ids below 2^24 are checkpoints
}

SegmentState& SegmentTable::state(SegmentId id) {
  const auto at = segments_.find(id);
  CHECK(at != segments_.end());
  return at->second;
}

const SegmentState* SegmentTable::find(SegmentId id) const {
  const auto at = segments_.find(id);
  return at == segments_.end() ? nullptr : &at->second;
}

void SegmentTable::add_bytes(SegmentState& state, int64_t bytes_per_shard) {
  num_bytes_ += (bytes_per_shard - state.bytes_per_shard) * (num_data_shards_ + num_parity_shards_);
  state.bytes_per_shard = bytes_per_shard;
}

SegmentId SegmentTable::new_id() {
  for (;;) {
    const SegmentId id{(writer_ & ~kCounterMask) | (num_made_++ & kCounterMask)};
    if (!segments_.contains(id)) return id;
  }
}

RowPlace SegmentTable::reserve(uint32_t group, TtlClass ttl_class, int64_t bucket, int64_t row_bytes) {
  const auto key = std::pair(group, ttl_class);
  if (const auto at = open_.find(key); at != open_.end()) {
    SegmentState& open = state(at->second);
    const bool fits = open.end + row_bytes <= segment_bytes_max_ || open.end == kPageBytes;
    if (open.head.bucket != bucket || !fits) close(at->second);
  }
  auto at = open_.find(key);
  if (at == open_.end()) {
    const SegmentId id = new_id();
    SegmentState fresh{.head = {.id = id,
                                .group = group,
                                .ttl_class = ttl_class,
                                .num_data_shards = static_cast<uint8_t>(num_data_shards_),
                                .num_parity_shards = static_cast<uint8_t>(num_parity_shards_),
                                .bucket = bucket,
                                .writer = writer_}};
    fresh.footers.resize(static_cast<size_t>(num_data_shards_ + num_parity_shards_));
    segments_.emplace(id, std::move(fresh));
    at = open_.emplace(key, id).first;
  }
  SegmentState& open = state(at->second);
  const RowPlace place{at->second, open.end, open.phase == SegmentState::Phase::kNew};
  open.end += row_bytes;
  ++open.num_pending;
  add_bytes(open, open.end);
  return place;
}

void SegmentTable::head_written(SegmentId id) {
  SegmentState& s = state(id);
  if (s.phase == SegmentState::Phase::kNew) s.phase = SegmentState::Phase::kOpen;
}

void SegmentTable::finish_row(SegmentId id, const std::optional<ExtentRecord>& record,
                              const std::vector<std::vector<uint32_t>>& part_crcs) {
  const auto at = segments_.find(id);
  if (at == segments_.end()) return;
  SegmentState& s = at->second;
  --s.num_pending;
  if (!record) return;
  for (size_t shard = 0; shard < s.footers.size(); ++shard) s.footers[shard].push_back({*record, part_crcs[shard]});
}

void SegmentTable::close(SegmentId id) {
  SegmentState& s = state(id);
  if (s.phase == SegmentState::Phase::kSealed) return;
  s.phase = SegmentState::Phase::kClosing;
  const auto at = open_.find({s.head.group, s.head.ttl_class});
  if (at != open_.end() && at->second == id) open_.erase(at);
}

void SegmentTable::close_older_than(int64_t bucket) {
  const auto open = open_;
  for (const auto& [key, id] : open)
    if (state(id).head.bucket < bucket) close(id);
}

void SegmentTable::close_all() {
  const auto open = open_;
  for (const auto& [key, id] : open) close(id);
}

std::vector<SegmentId> SegmentTable::ready_to_seal() const {
  std::vector<SegmentId> ready;
  for (const auto& [id, s] : segments_)
    if (s.phase == SegmentState::Phase::kClosing && s.num_pending == 0) ready.push_back(id);
  return ready;
}

void SegmentTable::sealed(SegmentId id, int64_t bytes_per_shard) {
  SegmentState& s = state(id);
  s.phase = SegmentState::Phase::kSealed;
  s.footers.clear();
  add_bytes(s, bytes_per_shard);
}

void SegmentTable::add(SegmentState found) {
  const SegmentId id = found.head.id;
  const int64_t bytes = std::exchange(found.bytes_per_shard, 0);
  const auto [at, is_new] = segments_.emplace(id, std::move(found));
  CHECK(is_new);
  add_bytes(at->second, bytes);
}

void SegmentTable::erase(SegmentId id) {
  const auto at = segments_.find(id);
  if (at == segments_.end()) return;
  const auto open = open_.find({at->second.head.group, at->second.head.ttl_class});
  if (open != open_.end() && open->second == id) open_.erase(open);
  add_bytes(at->second, 0);
  segments_.erase(at);
}

}  // namespace deepinfer
