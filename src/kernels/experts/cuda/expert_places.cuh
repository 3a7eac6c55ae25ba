// SPDX-License-Identifier: MIT
// Where the rows of experts stand: each expert's in groups of eight of its own, so that no tile has rows of two.
#pragma once

#include "kernels/experts/cuda/expert_table.cuh"

namespace deepinfer {

struct ExpertPlace {
  int32_t expert, row, num_rows;  // the tile's first row among the expert's, and the expert's rows from there on
  int32_t first_group;            // of the expert
};

// The tile-th of the tiles of tile_rows rows of all experts, in their order; expert -1 behind the last. A whole warp calls.
__device__ inline ExpertPlace find_place(const View<const int32_t, dim::experts>& begin, int tile, int tile_rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32, experts = static_cast<int>(begin.size[0]) - 1;
  int tiles_before = 0, groups_before = 0;
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane, rows = e < experts ? begin(e + 1) - begin(e) : 0;
    const int tiles = (rows + tile_rows - 1) / tile_rows, groups = (rows + 7) / 8;
    int tile_sum = tiles, group_sum = groups;  // up to this expert
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int t = __shfl_up_sync(0xFFFFFFFFu, tile_sum, step), g = __shfl_up_sync(0xFFFFFFFFu, group_sum, step);
      if (lane >= step) tile_sum += t, group_sum += g;
    }
    if (const unsigned votes = __ballot_sync(0xFFFFFFFFu, tile < tiles_before + tile_sum)) {
      const int found = __ffs(static_cast<int>(votes)) - 1;
      const int row = __shfl_sync(0xFFFFFFFFu, (tile - tiles_before - tile_sum + tiles) * tile_rows, found);
      return {first + found, row, __shfl_sync(0xFFFFFFFFu, rows, found) - row,
              groups_before + __shfl_sync(0xFFFFFFFFu, group_sum - groups, found)};
    }
    tiles_before += __shfl_sync(0xFFFFFFFFu, tile_sum, 31), groups_before += __shfl_sync(0xFFFFFFFFu, group_sum, 31);
  }
  return {-1, 0, 0, 0};
}

}  // namespace deepinfer
