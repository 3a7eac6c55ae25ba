// SPDX-License-Identifier: MIT
// The tile over V16 lanes; the including file has chosen the lanes and kRegisterRows, the queries whose results fill
// the registers. Everything has internal linkage.
#pragma once

#include <cstdint>

#include "kernels/vision_attention/cpu/vision_tile.h"

namespace deepinfer {
namespace {

constexpr int kTile = kVisionTileQueries, kPanel = kVisionPanel, kKeyBlock = kVisionTileKeys;
static_assert(kTile % kRegisterRows == 0 && kKeyBlock % kPanel == 0 && kPanel == 16);

// c[rows][16] += a[rows][depth] b[depth][16], terms in ascending depth, each fused.
inline void multiply_tile(const float* a, int64_t a_stride, const float* b, int64_t depth, float* c, int64_t c_stride) {
  V16 sum[kRegisterRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRegisterRows; ++i) sum[i] = load16(c + i * c_stride);
  for (int64_t k = 0; k < depth; ++k) {
    const V16 bk = load16(b + k * kPanel);
#pragma GCC unroll 16
    for (int i = 0; i < kRegisterRows; ++i) sum[i] = add_exact_product(sum[i], set16(a[i * a_stride + k]), bk);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRegisterRows; ++i) store16(c + i * c_stride, sum[i]);
}

// weights[24][keys rounded up to 16] = q . k, unscaled.
inline void score_block(const VisionTile& t, int64_t begin, int64_t padded_keys) {
  for (int64_t j = 0; j < padded_keys; j += kPanel)
    for (int row = 0; row < kTile; row += kRegisterRows) {
      float* c = t.weights + row * kKeyBlock + j;
      for (int i = 0; i < kRegisterRows; ++i) store16(c + i * kKeyBlock, zero16());
      multiply_tile(t.q + row * t.head_dim, t.head_dim, t.k_panels + (begin + j) * t.head_dim, t.head_dim, c,
                    kKeyBlock);
    }
}

inline float largest_of(V16 x) {
  float v[16];
  store16(v, x);
  float m = v[0];
  for (int i = 1; i < 16; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

inline float exp1(float x) {
  float v[16];
  store16(v, exp16(set16(x)));
  return v[0];
}

struct Running {
  float max = -__builtin_inff(), sum = 0;
};

// Scores of one query to weights; returns what the accumulated output must be multiplied by.
inline float weigh_row(float* scores, int64_t num_keys, int64_t padded_keys, float scale, Running& state) {
  for (int64_t j = 0; j < padded_keys; j += kPanel) store16(scores + j, mul(load16(scores + j), set16(scale)));
  for (int64_t j = num_keys; j < padded_keys; ++j) scores[j] = -__builtin_inff();
  V16 largest = set16(state.max);
  for (int64_t j = 0; j < padded_keys; j += kPanel) largest = max(load16(scores + j), largest);
  const float new_max = largest_of(largest), rescale = exp1(state.max - new_max);
  V16 sum = zero16();
  for (int64_t j = 0; j < padded_keys; j += kPanel) {
    const V16 weight = exp16(sub(load16(scores + j), set16(new_max)));
    sum = add(sum, weight);
    store16(scores + j, weight);
  }
  state.sum = state.sum * rescale + fold(sum);
  state.max = new_max;
  return rescale;
}

inline void rescale_row(float* out, int64_t size, float factor) {
  for (int64_t d = 0; d < size; d += kPanel) store16(out + d, mul(load16(out + d), set16(factor)));
}

inline void run_vision_tile(const VisionTile& t) {
  const int64_t width = (t.head_dim + kPanel - 1) / kPanel * kPanel;
  Running state[kTile];
  for (int64_t i = 0; i < kTile * width; i += kPanel) store16(t.out + i, zero16());
  for (int64_t begin = 0; begin < t.num_keys; begin += kKeyBlock) {
    const int64_t keys = t.num_keys - begin < kKeyBlock ? t.num_keys - begin : kKeyBlock;
    const int64_t padded = (keys + kPanel - 1) / kPanel * kPanel;
    score_block(t, begin, padded);
    for (int i = 0; i < kTile; ++i)
      rescale_row(t.out + i * width, width, weigh_row(t.weights + i * kKeyBlock, keys, padded, t.scale, state[i]));
    for (int64_t d = 0; d < width; d += kPanel)
      for (int row = 0; row < kTile; row += kRegisterRows)
        multiply_tile(t.weights + row * kKeyBlock, kKeyBlock, t.v_panels + (d / kPanel * t.num_keys + begin) * kPanel,
                      keys, t.out + row * width + d, width);
  }
  for (int i = 0; i < kTile; ++i)
    for (int64_t d = 0; d < width; d += kPanel)
      store16(t.out + i * width + d, div(load16(t.out + i * width + d), set16(state[i].sum)));
}

}  // namespace
}  // namespace deepinfer
