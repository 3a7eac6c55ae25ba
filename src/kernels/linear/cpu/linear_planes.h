// SPDX-License-Identifier: MIT
// Many activation rows by a tile of weights over fp32 lanes of 512 bits. Where few rows keep the sixteen lanes of a sum
// (lanes.h) in one register, here a register holds one lane of sixteen outputs: a "plane" of the product is what the
// columns k with k mod 16 = l add to lane l, and each plane is a product of matrices with a sixteenth of the columns.
// Activations are broadcast, weights stand transposed, so a step of 8 rows by 32 outputs loads ten registers for
// sixteen multiply-adds and all of them from the first cache. The sixteen planes are folded at the end, in the order of
// lanes.h.
#pragma once

#include <cstdint>

namespace deepinfer {

inline constexpr int64_t kPlanes = 16, kPlaneOut = 32;

// Columns [k_begin, k_begin + k_size) of up to kPlaneOut weight rows, k_begin a multiple of 128. What is missing of 32
// columns counts as zero; of outputs, the last stands again for those that are missing.
struct PlaneShape {
  int64_t k_begin, k_size, num_out;
  int64_t steps() const { return (k_size + 31) / 32 * 2; }  // columns of a plane
};
// Working memory for panels of up to `columns` columns (a multiple of 32), each part aligned to 64.
struct TurnedPanel {
  uint8_t* codes;  // [64 * columns]
  float* scales;   // [columns]
  float* plane;    // [2 * columns]
};
// Columns of a panel for rows of `in`: a multiple of 128, as even as can be. Of 2,048 the turned codes take up to 128
// KiB.
constexpr int64_t plane_columns(int64_t in) {
  const int64_t num_panels = (in + 2047) / 2048;
  return ((in + num_panels - 1) / num_panels + 127) / 128 * 128;
}

struct PlaneKernels {
  // Columns [begin, begin + size) of a row, woven as LinearKernels::prepare() leaves them, into its planes: [panel, 16,
  // steps()] floats, together `in` rounded up to 32. begin is a multiple of 32, size too unless the row ends there.
  void (*spread)(const float* woven, int64_t begin, int64_t size, int64_t in, float* planes);
  // Codes, scales and values are those of column 0 of the panel's first row.
  void (*turn_fp8)(const uint8_t* codes, const uint8_t* scales, int64_t in, const PlaneShape& shape,
                   const TurnedPanel& panel);
  void (*turn_fp4)(const uint8_t* codes, const uint8_t* scales, int64_t in, const PlaneShape& shape,
                   const TurnedPanel& panel);
  void (*turn_bf16)(const uint16_t* values, int64_t in, const PlaneShape& shape, const TurnedPanel& panel);
  // sums += x panel^T for a panel that was just turned, or = where it is the first of its rows; x: planes of rows.
  // Sums: 16 * kPlaneOut floats a row.
  using Multiply = void (*)(const float* const* x, int64_t num_x, const TurnedPanel& panel, const PlaneShape& shape,
                            float* sums);
  Multiply multiply_fp8, multiply_fp4, multiply_bf16;
  void (*fold)(const float* sums, int64_t num_x, float* y);  // y: [num_x, kPlaneOut]
};

const PlaneKernels& plane_kernels_avx512();

}  // namespace deepinfer
