// SPDX-License-Identifier: MIT
// Where cache rows live. All row formats are those of kernels/quantize/quantize.h; strides here are in bytes.
// A lane is a request's row of device-resident state: it owns one ring per layer and one row of the block table.
#pragma once

#include <cstdint>

#include "kernels/op.h"

namespace deepinfer {

// SWA KV of one layer: per lane a ring of `capacity` rows; position p stands in slot p mod capacity.
template <typename Byte>
struct RingRows {
  Byte* base = nullptr;
  int64_t lane_stride_bytes = 0, row_stride_bytes = 0;
  int32_t capacity = 0;
  constexpr Byte* row(int64_t lane, int64_t position) const { return base + offset_bytes(lane, position); }
  constexpr int64_t offset_bytes(int64_t lane, int64_t position) const {
    return lane * lane_stride_bytes + position % capacity * row_stride_bytes;
  }
};

// One plane (compressed KV or index keys) of one kv-source layer: blocks of rows_per_block rows, found through the
// block table of the sequence's lane. Entry j of a lane stands in block table(lane, j / rows_per_block), row j mod
// rows_per_block.
template <typename Byte>
struct PagedRows {
  Byte* base = nullptr;
  int64_t block_stride_bytes = 0, row_stride_bytes = 0;
  int32_t rows_per_block = 0;  // block_size_tokens / compress ratio
  View<const int32_t, dim::lanes, dim::blocks> block_table;
  constexpr Byte* row(int64_t lane, int64_t entry) const { return base + offset_bytes(lane, entry); }
  constexpr int64_t offset_bytes(int64_t lane, int64_t entry) const {
    return block_table(lane, entry / rows_per_block) * block_stride_bytes + entry % rows_per_block * row_stride_bytes;
  }
};

using ConstRing = RingRows<const uint8_t>;
using ConstPaged = PagedRows<const uint8_t>;

}  // namespace deepinfer
