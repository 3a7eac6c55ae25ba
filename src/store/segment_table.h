// SPDX-License-Identifier: MIT
// The segments of a store: which are open for appending, where the next row goes, how large each is, when each ends.
// Thread: one owner (the store's mutex).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "store/segment.h"
#include "store/ttl.h"

namespace deepinfer {

struct SegmentState {
  SegmentHead head;
  int64_t end = kPageBytes;     // where the next row goes
  int64_t bytes_per_shard = 0;  // as counted against the capacity
  int64_t num_pending = 0;      // rows reserved and not yet acknowledged or given up
  enum class Phase { kNew, kOpen, kClosing, kSealed } phase = Phase::kNew;
  std::vector<std::vector<FooterExtent>> footers;  // per shard, while it is not sealed
};

struct RowPlace {
  SegmentId segment{};
  int64_t offset = 0;
  bool is_new = false;  // its head pages must be written before the row
};

class SegmentTable {
 public:
  // `writer` is unlike that of any other writer of the same devices; ids of segments begin with its upper 40 bits.
  SegmentTable(uint64_t writer, int num_data_shards, int num_parity_shards, int64_t segment_bytes_max);

  // Room for a row in the open segment of (group, class, bucket); opens one when there is none. Segments of the same
  // group and class that are full or of another hour start closing.
  RowPlace reserve(uint32_t group, TtlClass ttl_class, int64_t bucket, int64_t row_bytes);
  void head_written(SegmentId id);
  // The row was acknowledged (with the checksums for the footer) or given up (nullopt).
  void finish_row(SegmentId id, const std::optional<ExtentRecord>& record,
                  const std::vector<std::vector<uint32_t>>& part_crcs);

  void close(SegmentId id);
  void close_older_than(int64_t bucket);  // of an earlier hour
  void close_all();
  // Closing and without rows under way: to be sealed now.
  std::vector<SegmentId> ready_to_seal() const;
  void sealed(SegmentId id, int64_t bytes_per_shard);

  void add(SegmentState state);  // found when the store was opened
  void erase(SegmentId id);
  const SegmentState* find(SegmentId id) const;
  const std::map<SegmentId, SegmentState>& all() const { return segments_; }
  int64_t num_bytes() const { return num_bytes_; }  // over all shards

 private:
  SegmentState& state(SegmentId id);
  void add_bytes(SegmentState& state, int64_t bytes_per_shard);
  SegmentId new_id();

  const uint64_t writer_;
  const int num_data_shards_, num_parity_shards_;
  const int64_t segment_bytes_max_;
  uint64_t num_made_ = 0;
  std::map<SegmentId, SegmentState> segments_;
  std::map<std::pair<uint32_t, TtlClass>, SegmentId> open_;
  int64_t num_bytes_ = 0;
};

}  // namespace deepinfer
