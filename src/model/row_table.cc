// SPDX-License-Identifier: MIT
#include "model/row_table.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "kernels/compressor/compressor.h"

namespace deepinfer {

RowTable::RowTable(const CacheLayout& layout, int64_t rows_max, StagedTables& tables)
    : layout_(layout),
      rows_max_(rows_max),
      max_visible_(layout.sources.size(), 0),
      source_(tables, PerRow{rows_max}),
      position_(tables, PerRow{rows_max}),
      lane_(tables, PerRow{rows_max}),
      window_begin_(tables, PerRow{rows_max}),
      window_end_(tables, PerRow{rows_max}),
      num_fresh_(tables, PerRow{rows_max}),
      ring_offset_(tables, PerRow{rows_max}),
      is_image_(tables, PerRow{rows_max}) {
  for (size_t s = 0; s < layout.sources.size(); ++s) visible_.emplace_back(tables, PerRow{rows_max});
}

Status RowTable::check_sequence(const SequenceRows& sequence, const RowBatch& batch, const Caches& caches) const {
  const auto where = [&] { return "batch: lane " + std::to_string(sequence.lane); };
  if (sequence.lane < 0 || sequence.lane >= caches.num_lanes)
    return invalid_argument(where() + ": there are " + std::to_string(caches.num_lanes) + " lanes");
  const Range rows = sequence.rows;
  if (rows.empty() || rows.begin < 0 || rows.end > batch.num_rows())
    return invalid_argument(where() + ": rows outside the batch");
  const int64_t position_end = sequence.position_begin + rows.size();
  if (sequence.position_begin < 0 || position_end > INT32_MAX)
    return invalid_argument(where() + ": position " + std::to_string(position_end) + " out of range");
  if (sequence.num_logits_rows < 0 || sequence.num_logits_rows > rows.size())
    return invalid_argument(where() + ": more logits rows than rows");
  if (sequence.num_logits_rows > 0 && position_end - sequence.num_logits_rows < sequence.decoder_begin)
    return invalid_argument(where() + ": logits asked for a row below decoder_begin " +
                            std::to_string(sequence.decoder_begin));
  if (layout_.sources.empty()) return {};
  const int64_t covered = static_cast<int64_t>(sequence.blocks.size()) * kBlockPositions;
  if (position_end > covered)
    return invalid_argument(where() + ": blocks cover " + std::to_string(covered) + " positions, rows end at " +
                            std::to_string(position_end));
  if (static_cast<int64_t>(sequence.blocks.size()) > caches.blocks_per_lane)
    return resource_exhausted(where() + ": " + std::to_string(sequence.blocks.size()) + " blocks, room for " +
                              std::to_string(caches.blocks_per_lane));
  for (const BlockId block : sequence.blocks)
    if (index(block) >= caches.num_blocks)
      return invalid_argument(where() + ": block " + std::to_string(index(block)) + " of " +
                              std::to_string(caches.num_blocks));
  return {};
}

Status RowTable::fill(const RowBatch& batch, const Caches& caches) {
  if (batch.num_rows() > rows_max_)
    return resource_exhausted("batch: " + std::to_string(batch.num_rows()) + " rows, room for " +
                              std::to_string(rows_max_));
  if (lane_is_used_.size() < caches.num_lanes) lane_is_used_ = Buffer<uint8_t>(caches.num_lanes);
  std::fill(lane_is_used_.begin(), lane_is_used_.end(), uint8_t{0});
  int64_t covered = 0;
  for (const SequenceRows& sequence : batch.sequences) {
    TRY(check_sequence(sequence, batch, caches));
    if (sequence.rows.begin != covered)
      return invalid_argument("batch: rows of the sequences do not follow each other");
    if (lane_is_used_[sequence.lane])
      return invalid_argument("batch: lane " + std::to_string(sequence.lane) + " stands twice");
    lane_is_used_[sequence.lane] = 1;
    covered = sequence.rows.end;
  }
  if (covered != batch.num_rows()) return invalid_argument("batch: rows without a sequence");
  sequences_.assign(batch.sequences.begin(), batch.sequences.end());
  sequence_rows_.clear();
  std::fill(max_visible_.begin(), max_visible_.end(), 0);
  num_rows_ = 0;
  for (const SequenceRows& sequence : sequences_) {
    add_rows(sequence, batch);
    finish_sequence(sequence, sequence.rows, sequence.window_begin);
  }
  return {};
}

// All rows of a sequence, table by table.
void RowTable::add_rows(const SequenceRows& sequence, const RowBatch& batch) {
  const int64_t first = num_rows_, num = sequence.rows.size();
  const auto count_up = [&](Staged<int32_t>& table, int64_t from) {
    std::iota(table.data() + first, table.data() + first + num, static_cast<int32_t>(from));
  };
  count_up(source_, sequence.rows.begin);
  count_up(position_, sequence.position_begin);
  count_up(window_end_, sequence.position_begin + 1);
  std::fill_n(lane_.data() + first, num, sequence.lane);
  uint8_t* is_image = is_image_.data() + first;
  std::fill_n(is_image, num, uint8_t{0});
  for (int64_t i = 0; i < num && !batch.image_rows.empty(); ++i)
    is_image[i] = batch.image_rows[static_cast<size_t>(sequence.rows.begin + i)] != nullptr;
  for (size_t s = 0; s < layout_.sources.size(); ++s) {
    int32_t* visible = visible_[s].data() + first;
    const int64_t ratio = layout_.sources[s].ratio;
    int64_t groups = sequence.position_begin / ratio, in_group = sequence.position_begin % ratio;
    for (int64_t i = 0; i < num; ++i) {  // one division a sequence: in decode this stands between two steps
      if (++in_group == ratio) in_group = 0, ++groups;
      visible[i] = static_cast<int32_t>(groups);
    }
    max_visible_[s] = std::max(max_visible_[s], visible[num - 1]);
  }
  num_rows_ += num;
}

void RowTable::add_row(int32_t source, const SequenceRows& sequence, int64_t position, bool is_image) {
  const int64_t row = num_rows_++;
  source_[row] = source;
  position_[row] = static_cast<int32_t>(position);
  lane_[row] = sequence.lane;
  is_image_[row] = is_image;
  window_end_[row] = static_cast<int32_t>(position + 1);
  for (size_t s = 0; s < layout_.sources.size(); ++s) {
    const int32_t visible = static_cast<int32_t>((position + 1) / layout_.sources[s].ratio);
    visible_[s][row] = visible;
    max_visible_[s] = std::max(max_visible_[s], visible);
  }
}

void RowTable::pad(int64_t num_rows) {
  CHECK(num_rows <= rows_max_ && !sequences_.empty());
  for (; num_rows_ < num_rows; ++num_rows_) {
    const int64_t row = num_rows_;
    source_[row] = static_cast<int32_t>(row);
    position_[row] = window_begin_[row] = 0;
    window_end_[row] = num_fresh_[row] = 1;
    lane_[row] = sequences_[0].lane;
    is_image_[row] = 0;
    ring_offset_[row] = kSkipRow;
    for (size_t s = 0; s < layout_.sources.size(); ++s) visible_[s][row] = 0;
  }
}

void RowTable::finish_sequence(const SequenceRows& sequence, Range rows, int64_t window_begin) {
  std::fill_n(window_begin_.data() + rows.begin, rows.size(), static_cast<int32_t>(window_begin));
  const int32_t* position = position_.data();
  int32_t* num_fresh = num_fresh_.data();
  int64_t* ring_offset = ring_offset_.data();
  const int64_t lane = sequence.lane * layout_.ring_bytes();
  int64_t slot = rows.empty() ? 0 : position[rows.begin] % layout_.ring_slots;  // positions follow each other
  for (int64_t row = rows.begin; row < rows.end; ++row, slot = slot + 1 == layout_.ring_slots ? 0 : slot + 1) {
    num_fresh[row] = static_cast<int32_t>(std::min(layout_.window, row - rows.begin + 1));
    const bool is_superseded = row + layout_.ring_slots < rows.end;
    ring_offset[row] = is_superseded ? kSkipRow : lane + slot * layout_.window_row_bytes;
  }
  sequence_rows_.push_back(rows);
}

bool RowTable::keeps_all_rows_of(const RowTable& all) const {
  for (int64_t s = 0; s < all.num_sequences(); ++s) {
    const Range rows = all.sequence_rows(s);
    if (!rows.empty() && all.position_[rows.begin] < all.sequence(s).decoder_begin) return false;
  }
  return true;
}

// What select_decoder() gives where every row goes on, as decode rows do: all but the windows are the same.
void RowTable::copy_rows(const RowTable& all, Windows windows) {
  sequence_rows_ = all.sequence_rows_;
  max_visible_ = all.max_visible_;
  num_rows_ = sequence_rows_.empty() ? 0 : sequence_rows_.back().end;
  const auto copy = [&](const auto& from, auto& to) { std::copy_n(from.data(), num_rows_, to.data()); };
  copy(all.position_, position_);
  copy(all.lane_, lane_);
  copy(all.window_end_, window_end_);
  copy(all.num_fresh_, num_fresh_);
  copy(all.ring_offset_, ring_offset_);
  copy(all.is_image_, is_image_);
  for (size_t s = 0; s < visible_.size(); ++s) copy(all.visible_[s], visible_[s]);
  std::iota(source_.data(), source_.data() + num_rows_, 0);
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const Range rows = sequence_rows_[s];
    const int64_t begin =
        windows == Windows::kEncoder ? sequences_[s].window_begin : sequences_[s].decoder_window_begin;
    std::fill_n(window_begin_.data() + rows.begin, rows.size(), static_cast<int32_t>(begin));
  }
}

void RowTable::select_decoder(const RowTable& all, Windows windows) {
  sequences_ = all.sequences_;
  if (keeps_all_rows_of(all)) return copy_rows(all, windows);
  sequence_rows_.clear();
  std::fill(max_visible_.begin(), max_visible_.end(), 0);
  num_rows_ = 0;
  for (int64_t s = 0; s < all.num_sequences(); ++s) {
    const SequenceRows& sequence = all.sequence(s);
    const Range from = all.sequence_rows(s);
    const int64_t begin = num_rows_;
    for (int64_t row = from.begin; row < from.end; ++row)
      if (all.position_[row] >= sequence.decoder_begin)
        add_row(static_cast<int32_t>(row), sequence, all.position_[row], all.is_image_[row] != 0);
    finish_sequence(sequence, {begin, num_rows_},
                    windows == Windows::kEncoder ? sequence.window_begin : sequence.decoder_window_begin);
  }
}

void RowTable::dropped_ring_offsets(const RowTable& selected, Staged<int64_t>& out) const {
  for (int64_t s = 0; s < num_sequences(); ++s) {
    const Range rows = sequence_rows(s);
    const int64_t cut = rows.end - selected.sequence_rows(s).size();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const bool is_written = row < cut && row + layout_.ring_slots >= cut;
      out[row] = is_written ? lane_[row] * layout_.ring_bytes() +
                                  position_[row] % layout_.ring_slots * layout_.window_row_bytes
                            : kSkipRow;
    }
  }
}

GroupTable::GroupTable(int64_t rows_max, StagedTables& tables)
    : lane_(tables, PerRow{rows_max}),
      last_row_(tables, PerRow{rows_max}),
      last_position_(tables, PerRow{rows_max}),
      num_rows_(tables, PerRow{rows_max}),
      first_position_(tables, PerRow{rows_max}),
      tail_position_(tables, PerRow{rows_max}),
      global_offset_(tables, PerRow{rows_max}),
      index_offset_(tables, PerRow{rows_max}) {}

void GroupTable::fill(const RowTable& rows, const Caches& caches, int source) {
  const CacheLayout::Source& layout = caches.layout.sources[static_cast<size_t>(source)];
  const int64_t ratio = layout.ratio;
  num_groups_ = 0;
  num_table_rows_ = rows.num_rows();
  int32_t* tail_position = tail_position_.data();
  for (int64_t s = 0; s < rows.num_sequences(); ++s) {
    const SequenceRows& sequence = rows.sequence(s);
    const Range range = rows.sequence_rows(s);
    const int64_t row_of_zero = range.begin - sequence.position_begin;  // of position 0, if it were a row
    for (int64_t row = range.begin; row < range.end; ++row)
      tail_position[row] = row + caches.layout.tail_slots < range.end ? -1 : static_cast<int32_t>(row - row_of_zero);
    // The last positions of groups: those before a multiple of the ratio.
    for (int64_t entry = sequence.position_begin / ratio;; ++entry) {
      const int64_t position = (entry + 1) * ratio - 1, row = row_of_zero + position;
      if (row >= range.end) break;
      const int64_t g = num_groups_++;
      lane_[g] = sequence.lane;
      last_row_[g] = static_cast<int32_t>(row);
      last_position_[g] = static_cast<int32_t>(position);
      num_rows_[g] = static_cast<int32_t>(std::min(ratio, row - range.begin + 1));
      first_position_[g] = static_cast<int32_t>(position - ratio + 1);
      const int64_t block =
          index(sequence.blocks[static_cast<size_t>(entry / layout.rows_per_block)]) * caches.layout.block_bytes;
      const bool is_written = position >= sequence.global_kv_begin;
      global_offset_[g] =
          is_written ? block + entry % layout.rows_per_block * caches.layout.global_row_bytes : kSkipRow;
      index_offset_[g] = is_written ? block + entry % layout.rows_per_block * caches.layout.index_row_bytes : kSkipRow;
    }
  }
}

void GroupTable::pad(const RowTable& rows) {
  const Range real = rows.sequence_rows(rows.num_sequences() - 1);
  for (int64_t row = real.end; row < num_table_rows_; ++row) tail_position_[row] = -1;
  for (; num_groups_ < num_table_rows_; ++num_groups_) {
    const int64_t g = num_groups_;
    lane_[g] = rows.sequence(0).lane;
    last_row_[g] = first_position_[g] = 0;
    last_position_[g] = kCompressRatioMax - 1;  // what stands before it in the tail are slots, too
    num_rows_[g] = 1;
    global_offset_[g] = index_offset_[g] = kSkipRow;
  }
}

}  // namespace deepinfer
