// SPDX-License-Identifier: MIT
// Activation rows by a tile of weights over fp32 lanes of 512 bits. Where few rows by packed rows of weights keep the
// sixteen lanes of a sum (lanes.h) in one register, here a register holds one lane of sixteen outputs: a "plane" of the
// product is what the columns k with k mod 16 = l add to lane l, and each plane is a product of matrices with a
// sixteenth of the columns. Activations are broadcast, weights stand turned, so a step of 8 rows by 32 outputs loads
// ten registers for sixteen multiply-adds and all of them from the first cache. The sixteen planes are folded at the
// end, in the order of lanes.h.
//
// Weights may stand turned in the checkpoint (WeightLayout::kPlanes), else panels of their columns are turned here,
// into the same order.
#pragma once

#include <cstdint>

namespace deepinfer {

inline constexpr int64_t kPlanes = 16, kPlaneOut = 32;

constexpr int64_t plane_steps(int64_t columns) { return (columns + 31) / 32 * 2; }  // columns of a plane

// Columns [k_begin, k_begin + k_size) of up to kPlaneOut weight rows of `in` columns, k_begin a multiple of 128. What
// is missing of 32 columns counts as zero; of outputs, the last stands again for those that are missing.
struct PlaneShape {
  int64_t k_begin, k_size, num_out, in;
  int64_t steps() const { return plane_steps(k_size); }
  int64_t row_steps() const { return plane_steps(in); }
};

// Weights that are needed after a panel, fetched into the second cache while it is multiplied: the machine's own
// prefetching has lost them by then. `num_runs` runs of one line for eight steps of the panel, `row_runs` of them side
// by side, then `stride` bytes on. Addresses may lie behind the weights: nothing but a prefetch uses them.
struct AheadLines {
  const uint8_t *here, *next;  // here: what is in a cache already
  int64_t stride, row_runs, num_runs;
  const uint8_t* run(int64_t i, int64_t steps) const {
    return i < num_runs ? next + i / row_runs * stride + i % row_runs * (steps / 8) * 64 : here;
  }
};

// Turned weights of a panel: planes stand together in eights (FP4), fours (FP8) or twos (bf16), 128 bytes a step.
struct PlanePanel {
  const uint8_t* codes;   // step 0 of the panel, of the first planes
  int64_t part_bytes;     // from there to the same step of the next planes
  const float* scales;    // [block] (FP8), [block, kPlaneOut] (FP4)
  bool has_bytes_behind;  // four bytes behind the codes may be read
  AheadLines ahead;
};

// Working memory for panels of up to `columns` columns (a multiple of 32), each part aligned to 64.
struct PanelMemory {
  uint8_t* codes;  // [64 * columns]
  float* scales;   // [columns]
  float* plane;    // [2 * columns]
};
// Columns of a panel for rows of `in`: a multiple of 128, as even as can be. Of 1,280 FP4 codes,
// scales and a plane stay in the first cache.
constexpr int64_t plane_columns(int64_t in) {
  const int64_t num_panels = (in + 1279) / 1280;
  return ((in + num_panels - 1) / num_panels + 127) / 128 * 128;
}

struct PlaneKernels {
  // Columns [begin, begin + size) of a row, woven as LinearKernels::prepare() leaves them, into its planes: [16,
  // plane_steps(in)] floats. begin is a multiple of 32, size too unless the row ends there.
  void (*spread)(const float* woven, int64_t begin, int64_t size, int64_t in, float* planes);
  // Codes, scales and values are those of column 0 of the panel's first row.
  PlanePanel (*turn_fp8)(const uint8_t* codes, const uint8_t* scales, const PlaneShape& shape,
                         const PanelMemory& memory);
  PlanePanel (*turn_fp4)(const uint8_t* codes, const uint8_t* scales, const PlaneShape& shape,
                         const PanelMemory& memory);
  PlanePanel (*turn_bf16)(const uint16_t* values, const PlaneShape& shape, const PanelMemory& memory);
  // Of weights in planes only the scales are copied. is_last: nothing is known to stand behind these 32 outputs.
  PlanePanel (*open_fp8)(const uint8_t* codes, const uint8_t* scales, const PlaneShape& shape, bool is_last,
                         const PanelMemory& memory);
  PlanePanel (*open_fp4)(const uint8_t* codes, const uint8_t* scales, const PlaneShape& shape, bool is_last,
                         const PanelMemory& memory);
  // sums += x panel^T, or = where the panel is the first of its rows; x: planes of rows. plane: PanelMemory's. Sums:
  // 16 * kPlaneOut floats a row.
  using Multiply = void (*)(const float* const* x, int64_t num_x, const PlanePanel& panel, const PlaneShape& shape,
                            float* plane, float* sums);
  Multiply multiply_fp8, multiply_fp4, multiply_bf16;
  void (*fold)(const float* sums, int64_t num_x, float* y);  // y: [num_x, kPlaneOut]
};

const PlaneKernels& plane_kernels_avx512();

}  // namespace deepinfer
