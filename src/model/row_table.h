// SPDX-License-Identifier: MIT
// The rows of a step with everything that is the same for every layer worked out once: positions, windows, where a
// row's keys go, which compression groups it completes. Rows stand in batch order.
//
// Three tables exist in a step: all rows; those at or above decoder_begin with the windows of the last kv-source layer,
// whose keys are written for all rows but whose queries are these; and the same rows with the windows of the layers
// after it. A row's results do not depend on its place in a table. All are filled on the host in a set of StagedTables,
// which its owner brings to the device.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/op.h"
#include "model/caches.h"
#include "model/row_batch.h"
#include "tensor/buffer.h"
#include "tensor/staged_tables.h"
#include "tensor/view.h"

namespace deepinfer {

class RowTable {
 public:
  enum class Windows { kEncoder, kDecoder };

  RowTable() = default;
  RowTable(const CacheLayout& layout, int64_t rows_max, StagedTables& tables);

  // Errors: invalid_argument or resource_exhausted for rows that do not fit the limits or contradict each other.
  Status fill(const RowBatch& batch, const Caches& caches);
  // Rows of no sequence behind the others, up to `num_rows`: they see themselves alone and leave nothing behind, so
  // that steps of a few more or fewer rows have one shape. All rows of the table go on to the last layer.
  void pad(int64_t num_rows);
  // The rows of `all` at or above their sequence's decoder_begin. A sequence may lose all its rows.
  void select_decoder(const RowTable& all, Windows windows);

  // Ring offsets for the rows of this table that `selected` left out, as if they were written alone; kSkipRow for the
  // others.
  void dropped_ring_offsets(const RowTable& selected, Staged<int64_t>& out) const;

  int64_t num_rows() const { return num_rows_; }
  int64_t num_sequences() const { return static_cast<int64_t>(sequences_.size()); }
  const SequenceRows& sequence(int64_t s) const { return sequences_[static_cast<size_t>(s)]; }
  Range sequence_rows(int64_t s) const { return sequence_rows_[static_cast<size_t>(s)]; }  // rows of this table
  int32_t source(int64_t row) const {
    return source_[row];
  }  // its row in the batch or in the table it was selected from

  // Of one row, for the host. Views below are for ops: on a device they show its memory.
  int64_t position(int64_t row) const { return position_[row]; }
  int32_t visible(int source, int64_t row) const { return visible_[static_cast<size_t>(source)][row]; }

  View<const int32_t, dim::tokens> positions() const { return view(position_); }
  View<const int32_t, dim::entries> sources() const { return {source_.on_device(), {num_rows_}}; }
  View<const int32_t, dim::tokens> lanes() const { return view(lane_); }
  View<const uint8_t, dim::tokens> is_image() const { return {is_image_.on_device(), {num_rows_}}; }
  View<const int32_t, dim::tokens> window_begin() const { return view(window_begin_); }
  View<const int32_t, dim::tokens> window_end() const { return view(window_end_); }
  View<const int32_t, dim::tokens> num_fresh() const { return view(num_fresh_); }
  // Byte offset into a layer's rings; kSkipRow where a newer row of this table takes the same slot.
  View<const int64_t, dim::rows> ring_offsets() const { return {ring_offset_.on_device(), {num_rows_}}; }
  // floor((p + 1) / ratio) of every row, for one source.
  View<const int32_t, dim::tokens> num_visible(int source) const { return view(visible_[static_cast<size_t>(source)]); }
  int32_t max_visible(int source) const { return max_visible_[static_cast<size_t>(source)]; }

 private:
  Status check_sequence(const SequenceRows& sequence, const RowBatch& batch, const Caches& caches) const;
  bool keeps_all_rows_of(const RowTable& all) const;
  void copy_rows(const RowTable& all, Windows windows);
  void add_rows(const SequenceRows& sequence, const RowBatch& batch);
  void add_row(int32_t source, const SequenceRows& sequence, int64_t position, bool is_image);
  void finish_sequence(const SequenceRows& sequence, Range rows, int64_t window_begin);
  View<const int32_t, dim::tokens> view(const Staged<int32_t>& values) const {
    return {values.on_device(), {num_rows_}};
  }

  CacheLayout layout_;
  int64_t rows_max_ = 0, num_rows_ = 0;  // padding counted
  std::vector<SequenceRows> sequences_;
  std::vector<Range> sequence_rows_;
  std::vector<int32_t> max_visible_;
  Staged<int32_t> source_, position_, lane_, window_begin_, window_end_, num_fresh_;
  std::vector<Staged<int32_t>> visible_;  // of each source
  Staged<int64_t> ring_offset_;
  Staged<uint8_t> is_image_;
  Buffer<uint8_t> lane_is_used_;
};

// The compression groups of one source that a step completes, and the rows its tails keep.
class GroupTable {
 public:
  GroupTable() = default;
  GroupTable(int64_t rows_max, StagedTables& tables);

  // Rows must be the table of all rows. `source` numbers the kv sources.
  void fill(const RowTable& rows, const Caches& caches, int source);
  // Groups that are not kept behind the others, up to one a row.
  void pad(const RowTable& rows);

  int64_t num_groups() const { return num_groups_; }
  View<const int32_t, dim::groups> lanes() const { return view(lane_); }
  View<const int32_t, dim::groups> last_rows() const { return view(last_row_); }
  View<const int32_t, dim::groups> last_positions() const { return view(last_position_); }
  View<const int32_t, dim::groups> num_rows() const { return view(num_rows_); }
  View<const int32_t, dim::tokens> first_positions() const {
    return {first_position_.on_device(), {num_groups_}};
  }  // j * ratio
  // Byte offsets from the source's planes; kSkipRow below the sequence's global_kv_begin.
  View<const int64_t, dim::rows> global_offsets() const { return {global_offset_.on_device(), {num_groups_}}; }
  View<const int64_t, dim::rows> index_offsets() const { return {index_offset_.on_device(), {num_groups_}}; }
  // Per row of the table: its position, or -1 where a newer row takes its slot in the tail.
  View<const int32_t, dim::tokens> tail_positions() const { return {tail_position_.on_device(), {num_table_rows_}}; }

 private:
  View<const int32_t, dim::groups> view(const Staged<int32_t>& values) const {
    return {values.on_device(), {num_groups_}};
  }

  int64_t num_groups_ = 0, num_table_rows_ = 0;
  Staged<int32_t> lane_, last_row_, last_position_, num_rows_, first_position_, tail_position_;
  Staged<int64_t> global_offset_, index_offset_;
};

}  // namespace deepinfer
