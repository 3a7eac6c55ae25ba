// SPDX-License-Identifier: MIT
// What the CPU rows of the linear and expert ops are built from: prepared activation rows times a tile of packed
// weights. A tile is 32 outputs (one scale row of an Fp8Matrix) by up to 64 activation rows (of 5,120 bf16 values: two
// thirds of a second cache of 1 MiB); each result is one sum in lane order, whatever tile it falls in and whatever
// other rows stand there.
#pragma once

#include "kernels/linear/linear.h"

namespace deepinfer {

inline constexpr int64_t kTileOut = 32, kTileRows = 64;
inline constexpr int64_t kFewRows = 8;  // up to which rows are multiplied straight from the packed weights

struct WeightTile {
  const WeightMatrix& weight;
  int64_t out_begin, out_size;  // out_begin is a multiple of 32 within its group
};

// One level of instructions. Prepared rows and workspaces are opaque bytes, aligned to 64.
struct TileKernels {
  int64_t (*row_bytes)(int64_t in);
  // Columns [begin, begin + size) of a row of `in` activations, begin a multiple of 32 and size too unless the row ends
  // there. With round also through e4m3 with a power-of-two scale per 32 columns. Columns may be prepared in any order
  // and on any threads. With planes the row can be multiplied among more than kFewRows rows, and by weights in planes.
  void (*prepare)(const uint16_t* x, int64_t begin, int64_t size, int64_t in, bool round, bool planes, uint8_t* row);
  int64_t (*workspace_bytes)(int64_t in);  // of one worker
  // y[m * kTileOut + o] = dot(row m, weight row out_begin + o).
  void (*multiply)(const WeightTile& tile, const uint8_t* const* rows, int64_t num_rows, uint8_t* workspace, float* y);
  void (*round_bf16)(const float* y, int64_t size, uint16_t* out);
  int64_t rows_together;  // so many tiles of rows pass over a tile of weights before the next tile of weights
};

const TileKernels& tile_kernels_avx2();
const TileKernels& tile_kernels_avx512();
const TileKernels& tile_kernels_bf16();  // weights in rows only

}  // namespace deepinfer
