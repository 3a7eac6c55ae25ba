// SPDX-License-Identifier: MIT
// Products of every x row with every row of a panel, register-tiled, the lane sums carried over the panels of a row.
// Over a Terms policy: fp32 lanes or bf16 pairs. All products must be exact. Each result is one sum in lane order,
// whatever tile it falls in.
#pragma once

#include "kernels/linear/cpu/linear_kernels.h"

namespace deepinfer {
namespace {

// `sums` are those of the tile, one after the other.
template <typename Terms, int kX, int kW>
void multiply_panel_tile(const typename Terms::Element* const* x, const typename Terms::Element* panel,
                         const PanelShape& shape, const PanelSums& out, float* sums, float* y) {
  const int64_t width = shape.width();
  const typename Terms::Element* xs[kX];
  for (int m = 0; m < kX; ++m) xs[m] = x[m] + shape.k_begin;
  V16 acc[kX][kW];
  if (out.first) {
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m)
#pragma GCC unroll 8
      for (int n = 0; n < kW; ++n) acc[m][n] = zero16();
  } else {
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m)
#pragma GCC unroll 8
      for (int n = 0; n < kW; ++n) acc[m][n] = load16(sums + (m * kW + n) * 16);
  }
  for (int64_t k = 0; k < width; k += Terms::kTerms) {
    typename Terms::Value values[kX];
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m) values[m] = Terms::load(xs[m] + k);
#pragma GCC unroll 8
    for (int n = 0; n < kW; ++n) {
      const typename Terms::Value wn = Terms::load(panel + n * width + k);
#pragma GCC unroll 8
      for (int m = 0; m < kX; ++m) acc[m][n] = Terms::add_products(acc[m][n], values[m], wn);
    }
  }
  if (!out.last) {
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m)
#pragma GCC unroll 8
      for (int n = 0; n < kW; ++n) store16(sums + (m * kW + n) * 16, acc[m][n]);
    return;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kW; ++n) acc[m][n] = Terms::in_order(acc[m][n]);
    constexpr int kFours = kW / 4 * 4;
#pragma GCC unroll 2
    for (int n = 0; n < kFours; n += 4)
      _mm_storeu_ps(y + m * out.y_stride + n, fold4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3]));
#pragma GCC unroll 4
    for (int n = kFours; n < kW; ++n) y[m * out.y_stride + n] = fold(acc[m][n]);
  }
}

// Output columns [first, first + kW).
template <typename Terms, int kW>
void multiply_panel_columns(const typename Terms::Element* const* x, int64_t num_x,
                            const typename Terms::Element* panel, const PanelShape& shape, const PanelSums& out,
                            int64_t first) {
  panel += first * shape.width();
  float *sums = out.sums + first * num_x * 16, *y = out.y + first;
  int64_t m = 0;
  for (; m + Terms::kX <= num_x; m += Terms::kX)
    multiply_panel_tile<Terms, Terms::kX, kW>(x + m, panel, shape, out, sums + m * kW * 16, y + m * out.y_stride);
  for (; Terms::kX > 2 && m + 2 <= num_x; m += 2)
    multiply_panel_tile<Terms, 2, kW>(x + m, panel, shape, out, sums + m * kW * 16, y + m * out.y_stride);
  for (; m < num_x; ++m)
    multiply_panel_tile<Terms, 1, kW>(x + m, panel, shape, out, sums + m * kW * 16, y + m * out.y_stride);
}

template <typename Terms>
void multiply_panel(const typename Terms::Element* const* x, int64_t num_x, const typename Terms::Element* panel,
                    const PanelShape& shape, const PanelSums& out) {
  int64_t o = 0;
  for (; o + Terms::kW <= shape.num_out; o += Terms::kW)
    multiply_panel_columns<Terms, Terms::kW>(x, num_x, panel, shape, out, o);
  for (; o < shape.num_out; ++o) multiply_panel_columns<Terms, 1>(x, num_x, panel, shape, out, o);
}

}  // namespace
}  // namespace deepinfer
