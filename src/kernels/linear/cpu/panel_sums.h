// SPDX-License-Identifier: MIT
// Products of every x row with every row of a panel, register-tiled, the lane sums carried over the panels of a row.
// Over a Terms policy: fp32 lanes or bf16 pairs. All products must be exact. Each result is one sum in lane order,
// whatever tile it falls in.
#pragma once

#include "kernels/linear/cpu/linear_kernels.h"

namespace deepinfer {
namespace {

template <typename Terms, int kX, int kW>
void multiply_panel_tile(const typename Terms::Element* const* x, const typename Terms::Element* panel,
                         const PanelShape& shape, const PanelSums& out, int64_t first_x, int64_t first_w) {
  const int64_t width = shape.width();
  const typename Terms::Element* xs[kX];
  for (int m = 0; m < kX; ++m) xs[m] = x[first_x + m] + shape.k_begin;
  const typename Terms::Element* w = panel + first_w * width;
  float* sums = out.sums + (first_x * shape.num_out + first_w) * 16;
  V16 acc[kX][kW];
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < kW; ++n) acc[m][n] = out.first ? zero16() : load16(sums + (m * shape.num_out + n) * 16);
  for (int64_t k = 0; k < width; k += Terms::kTerms) {
    typename Terms::Value values[kX];
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m) values[m] = Terms::load(xs[m] + k);
#pragma GCC unroll 8
    for (int n = 0; n < kW; ++n) {
      const typename Terms::Value wn = Terms::load(w + n * width + k);
#pragma GCC unroll 8
      for (int m = 0; m < kX; ++m) acc[m][n] = Terms::add_products(acc[m][n], values[m], wn);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < kW; ++n)
      if (!out.last) store16(sums + (m * shape.num_out + n) * 16, acc[m][n]);
  if (!out.last) return;
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    float* y = out.y + (first_x + m) * out.y_stride + first_w;
    int n = 0;
    for (; n + 4 <= kW; n += 4) _mm_storeu_ps(y + n, fold4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3]));
    for (; n < kW; ++n) y[n] = fold(acc[m][n]);
  }
}

template <typename Terms, int kW>
void multiply_panel_columns(const typename Terms::Element* const* x, int64_t num_x,
                            const typename Terms::Element* panel, const PanelShape& shape, const PanelSums& out,
                            int64_t first_w) {
  int64_t m = 0;
  for (; m + kPanelX <= num_x; m += kPanelX) multiply_panel_tile<Terms, kPanelX, kW>(x, panel, shape, out, m, first_w);
  if (kPanelX > 2 && m + 2 <= num_x) {
    multiply_panel_tile<Terms, 2, kW>(x, panel, shape, out, m, first_w);
    m += 2;
  }
  for (; m < num_x; ++m) multiply_panel_tile<Terms, 1, kW>(x, panel, shape, out, m, first_w);
}

template <typename Terms>
void multiply_panel(const typename Terms::Element* const* x, int64_t num_x, const typename Terms::Element* panel,
                    const PanelShape& shape, const PanelSums& out) {
  int64_t o = 0;
  for (; o + kPanelW <= shape.num_out; o += kPanelW)
    multiply_panel_columns<Terms, kPanelW>(x, num_x, panel, shape, out, o);
  for (; o < shape.num_out; ++o) multiply_panel_columns<Terms, 1>(x, num_x, panel, shape, out, o);
}

}  // namespace
}  // namespace deepinfer
