// SPDX-License-Identifier: MIT
// The physical caches, owned by the engine and written by the forward pass: pointers into the memory of the device. See
// cache_layout.h for what stands where.
#pragma once

#include <cstdint>

#include "kernels/cache_rows.h"
#include "model/cache_layout.h"

namespace deepinfer {

struct Caches {
  CacheLayout layout;
  int64_t num_lanes = 0, num_blocks = 0, blocks_per_lane = 0;
  uint8_t* rings = nullptr;        // [layer][lane][slot][window_row_bytes], draft layers last
  uint8_t* blocks = nullptr;       // [block][block_bytes]
  float* tails = nullptr;          // [source][lane][slot][2 * head_dim]: k, then s; sources of ratio 1 take room, too
  int32_t* block_table = nullptr;  // [lane][blocks_per_lane], on the host, written by begin()
  int32_t* device_block_table = nullptr;  // the same for ops; block_table itself on the host

  uint8_t* ring_base(int layer) const { return rings + layer * num_lanes * layout.ring_bytes(); }
  ConstRing ring(int layer) const {
    return {ring_base(layer), layout.ring_bytes(), layout.window_row_bytes, static_cast<int32_t>(layout.ring_slots)};
  }
  uint8_t* global_base(int source) const { return blocks + layout.sources[static_cast<size_t>(source)].global_offset; }
  uint8_t* index_base(int source) const { return blocks + layout.sources[static_cast<size_t>(source)].index_offset; }
  ConstPaged global_rows(int source) const { return paged(source, global_base(source), layout.global_row_bytes); }
  ConstPaged index_rows(int source) const { return paged(source, index_base(source), layout.index_row_bytes); }
  View<float, dim::lanes, dim::slots, dim::columns> tail(int source) const {
    return {tails + source * num_lanes * layout.tail_slots * 2 * layout.head_dim,
            {num_lanes, layout.tail_slots, 2 * layout.head_dim}};
  }

 private:
  ConstPaged paged(int source, const uint8_t* base, int64_t row_stride_bytes) const {
    return {base,
            layout.block_bytes,
            row_stride_bytes,
            static_cast<int32_t>(layout.sources[static_cast<size_t>(source)].rows_per_block),
            {device_block_table, {num_lanes, blocks_per_lane}}};
  }
};

}  // namespace deepinfer
