// SPDX-License-Identifier: MIT
// Bodies of StreamKernels over V16 lanes; the including file has chosen the lanes.
#pragma once

#include "kernels/hyper_connection/cpu/hyper_connection_kernels.h"

namespace deepinfer {
namespace {

constexpr int kStreamLimit = 8;

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
  int64_t o = 0;
  for (; o + 4 <= num_out; o += 4) mix_tile<kTokens, 4>(x, x_stride, fn + o * size, size, y + o, y_stride);
  for (; o < num_out; ++o) mix_tile<kTokens, 1>(x, x_stride, fn + o * size, size, y + o, y_stride);
}

void mix(const uint16_t* x, int64_t x_stride, int64_t num_tokens, const float* fn, int64_t size, int64_t num_out,
         float* y, int64_t y_stride) {
  if (num_tokens == 2) mix_tokens<2>(x, x_stride, fn, size, num_out, y, y_stride);
  else mix_tokens<1>(x, x_stride, fn, size, num_out, y, y_stride);
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

constexpr StreamKernels kStreamKernels = {sum_squares, mix, collapse, update};

}  // namespace
}  // namespace deepinfer
