// SPDX-License-Identifier: MIT
// Products of every x row with every w row, register-tiled, over V16 lanes; the including file has chosen the lanes.
// All products must be exact. Each result is one dot in lane order, whatever tile it falls in.
#pragma once

#include <cstdint>

namespace deepinfer {
namespace {

template <int kX, int kW>
void panel_tile(const float* x, int64_t x_stride, const float* w, int64_t stride, float* y, int64_t y_stride) {
  V16 acc[kX][kW];
  for (auto& row : acc)
    for (V16& a : row) a = zero16();
  for (int64_t k = 0; k < stride; k += 16) {
    V16 xs[kX];
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m) xs[m] = load16(x + m * x_stride + k);
#pragma GCC unroll 8
    for (int n = 0; n < kW; ++n) {
      const V16 wn = load16(w + n * stride + k);
#pragma GCC unroll 8
      for (int m = 0; m < kX; ++m) acc[m][n] = add_exact_product(acc[m][n], xs[m], wn);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    constexpr int kFours = kW / 4 * 4;
#pragma GCC unroll 2
    for (int n = 0; n < kFours; n += 4)
      _mm_storeu_ps(y + m * y_stride + n, fold4(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3]));
#pragma GCC unroll 4
    for (int n = kFours; n < kW; ++n) y[m * y_stride + n] = fold(acc[m][n]);
  }
}

template <int kW>
void panel_columns(const float* x, int64_t num_x, int64_t x_stride, const float* w, int64_t stride, float* y,
                   int64_t y_stride) {
  int64_t m = 0;
  for (; m + kPanelX <= num_x; m += kPanelX)
    panel_tile<kPanelX, kW>(x + m * x_stride, x_stride, w, stride, y + m * y_stride, y_stride);
  for (; kPanelX > 4 && m + 4 <= num_x; m += 4)
    panel_tile<4, kW>(x + m * x_stride, x_stride, w, stride, y + m * y_stride, y_stride);
  for (; kPanelX > 2 && m + 2 <= num_x; m += 2)
    panel_tile<2, kW>(x + m * x_stride, x_stride, w, stride, y + m * y_stride, y_stride);
  for (; m < num_x; ++m) panel_tile<1, kW>(x + m * x_stride, x_stride, w, stride, y + m * y_stride, y_stride);
}

// y[m * y_stride + o] = dot(x row m, w row o) over `stride` columns (a multiple of 16), the row length of w.
void panel(const float* x, int64_t num_x, int64_t x_stride, const float* w, int64_t num_out, int64_t stride, float* y,
           int64_t y_stride) {
  int64_t o = 0;
  for (; o + kPanelW <= num_out; o += kPanelW)
    panel_columns<kPanelW>(x, num_x, x_stride, w + o * stride, stride, y + o, y_stride);
  for (; o < num_out; ++o) panel_columns<1>(x, num_x, x_stride, w + o * stride, stride, y + o, y_stride);
}

}  // namespace
}  // namespace deepinfer
