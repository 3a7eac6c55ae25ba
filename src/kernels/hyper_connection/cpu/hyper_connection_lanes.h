// SPDX-License-Identifier: MIT
// Bodies of StreamKernels over V16 lanes; the including file has chosen the lanes.
#pragma once

#include <algorithm>

#include "kernels/hyper_connection/cpu/hyper_connection_kernels.h"

namespace deepinfer {
namespace {

constexpr int kStreamLimit = 8;
constexpr int kMixTokens = kPanelX > 2 ? 6 : 2;  // what the sums of a tile leave of the registers

float sum_squares(const uint16_t* x, int64_t size) {
  V16 acc = zero16();
  int64_t k = 0;
  for (; k + 16 <= size; k += 16) {
    const V16 a = load_bf16(x + k);
    acc = add_exact_product(acc, a, a);
  }
  if (k < size) {
    const V16 a = load_some_bf16(x + k, size - k);
    acc = add_exact_product(acc, a, a);
  }
  return fold(acc);
}

template <int kTokens, int kRows>
void mix_tile(const uint16_t* x, int64_t x_stride, const float* fn, int64_t size, float* y, int64_t y_stride) {
  V16 acc[kTokens][kRows];
  for (auto& row : acc)
    for (V16& a : row) a = zero16();
  int64_t k = 0;
  for (; k + 16 <= size; k += 16) {
    V16 xs[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) xs[t] = load_bf16(x + t * x_stride + k);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      _mm_prefetch(reinterpret_cast<const char*>(fn + (r + kRows) * size + k), _MM_HINT_T1);  // rows walked next
      const V16 f = load16(fn + r * size + k);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) acc[t][r] = add(acc[t][r], mul(xs[t], f));
    }
  }
  for (int t = 0; t < kTokens; ++t)
    for (int r = 0; r < kRows; ++r) {
      V16 a = acc[t][r];
      if (k < size)
        a = add(a, mul(load_some_bf16(x + t * x_stride + k, size - k), load_some(fn + r * size + k, size - k)));
      y[t * y_stride + r] = fold(a);
    }
}

template <int kTokens>
void mix_tokens(const uint16_t* x, int64_t x_stride, const float* fn, int64_t size, int64_t num_out, float* y,
                int64_t y_stride) {
  constexpr int kRows = kPanelX > 2 ? few_rows(kTokens) : 4;
  int64_t o = 0;
  for (; o + kRows <= num_out; o += kRows) mix_tile<kTokens, kRows>(x, x_stride, fn + o * size, size, y + o, y_stride);
  for (; o < num_out; ++o) mix_tile<kTokens, 1>(x, x_stride, fn + o * size, size, y + o, y_stride);
}

void mix(const uint16_t* x, int64_t x_stride, int64_t num_tokens, const float* fn, int64_t size, int64_t num_out,
         float* y, int64_t y_stride) {
  switch (num_tokens) {
    case 1: return mix_tokens<1>(x, x_stride, fn, size, num_out, y, y_stride);
    case 2: return mix_tokens<2>(x, x_stride, fn, size, num_out, y, y_stride);
    case 3: return mix_tokens<std::min(3, kMixTokens)>(x, x_stride, fn, size, num_out, y, y_stride);
    case 4: return mix_tokens<std::min(4, kMixTokens)>(x, x_stride, fn, size, num_out, y, y_stride);
    case 5: return mix_tokens<std::min(5, kMixTokens)>(x, x_stride, fn, size, num_out, y, y_stride);
    case 6: return mix_tokens<std::min(6, kMixTokens)>(x, x_stride, fn, size, num_out, y, y_stride);
  }
}

// Sums in the order of sinkhorn.h, into every place: of rows (quarters of a 4 x 4 matrix) and of columns.
V16 row_sums(V16 c) {
  return add(add(add(spread_element<0>(c), spread_element<1>(c)), spread_element<2>(c)), spread_element<3>(c));
}
V16 column_sums(V16 c) {
  return add(add(add(spread_quarter<0>(c), spread_quarter<1>(c)), spread_quarter<2>(c)), spread_quarter<3>(c));
}
V16 row_maxima(V16 c) {
  return max(spread_element<3>(c), max(spread_element<2>(c), max(spread_element<1>(c), spread_element<0>(c))));
}

// A token's matrix is one register; steps of one wait for a division, so several tokens take turns.
template <int kTokens>
void coefficients_of(float* mixed, const MixConstants& constants) {
  const V16 epsilon = set16(constants.epsilon), one = set16(1.f);
  V16 c[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    float* z = mixed + t * 24;
    const V16 matrix = add(mul(load16(z + 8), load16(constants.scale + 8)), load16(constants.base + 8));
    const V16 e = exp16(sub(matrix, row_maxima(matrix)));
    c[t] = add(div(e, row_sums(e)), epsilon);
    // pre, post and what is the matrix's again
    const V16 gates = add(mul(load16(z), load16(constants.scale)), load16(constants.base));
    const V16 sigmoids = div(one, add(one, exp16(sub(zero16(), gates))));
    alignas(64) float values[16], twice[16];
    store16(values, add(sigmoids, epsilon));
    store16(twice, mul(set16(2.f), sigmoids));
    for (int i = 0; i < 4; ++i) z[i] = values[i];
    for (int i = 4; i < 8; ++i) z[i] = twice[i];
  }
  for (int step = 0; step < constants.iterations; ++step) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens && step > 0; ++t) c[t] = div(c[t], add(row_sums(c[t]), epsilon));
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) c[t] = div(c[t], add(column_sums(c[t]), epsilon));
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) store16(mixed + t * 24 + 8, c[t]);
}

void coefficients(float* mixed, int64_t num_tokens, const MixConstants& constants) {
  int64_t t = 0;
  for (; t + 6 <= num_tokens; t += 6) coefficients_of<6>(mixed + t * 24, constants);
  for (; t + 4 <= num_tokens; t += 4) coefficients_of<4>(mixed + t * 24, constants);
  for (; t + 2 <= num_tokens; t += 2) coefficients_of<2>(mixed + t * 24, constants);
  for (; t < num_tokens; ++t) coefficients_of<1>(mixed + t * 24, constants);
}

void collapse(const uint16_t* x, int64_t stream_stride, int64_t streams, const float* pre, int64_t hidden,
              uint16_t* out) {
  for (int64_t d = 0; d < hidden; d += 16) {
    const int64_t n = hidden - d < 16 ? hidden - d : 16;
    V16 sum = zero16();
    for (int64_t s = 0; s < streams; ++s) {
      const uint16_t* row = x + s * stream_stride + d;
      sum = add(sum, mul(set16(pre[s]), n == 16 ? load_bf16(row) : load_some_bf16(row, n)));
    }
    if (n == 16) store_bf16(out + d, sum);
    else store_some_bf16(out + d, n, sum);
  }
}

void update(const uint16_t* x, int64_t stream_stride, const uint16_t* y, const float* post, const float* comb,
            int64_t streams, int64_t hidden, uint16_t* out, int64_t out_stride) {
  for (int64_t d = 0; d < hidden; d += 16) {
    const int64_t n = hidden - d < 16 ? hidden - d : 16;
    V16 xs[kStreamLimit];
    for (int64_t s = 0; s < streams; ++s)
      xs[s] = n == 16 ? load_bf16(x + s * stream_stride + d) : load_some_bf16(x + s * stream_stride + d, n);
    const V16 ys = n == 16 ? load_bf16(y + d) : load_some_bf16(y + d, n);
    for (int64_t j = 0; j < streams; ++j) {
      V16 sum = zero16();
      for (int64_t i = 0; i < streams; ++i) sum = add(sum, mul(set16(comb[i * streams + j]), xs[i]));
      sum = add(sum, mul(set16(post[j]), ys));
      if (n == 16) store_bf16(out + j * out_stride + d, sum);
      else store_some_bf16(out + j * out_stride + d, n, sum);
    }
  }
}

constexpr StreamKernels kStreamKernels = {kMixTokens, sum_squares, mix, coefficients, collapse, update};

}  // namespace
}  // namespace deepinfer
