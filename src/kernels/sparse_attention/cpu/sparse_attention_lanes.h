// SPDX-License-Identifier: MIT
// Bodies of AttentionKernels over V16 lanes; the including file has chosen the lanes. Products of bf16 values are
// exact.
#pragma once

#include <cstring>

#include "kernels/lanes/cpu/panel_lanes.h"
#include "kernels/sparse_attention/cpu/e4m3_values.h"
#include "kernels/sparse_attention/cpu/sparse_attention_kernels.h"

namespace deepinfer {
namespace {

constexpr int kBlock = 64;

float e8m0(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

void unpack_fp8(const uint8_t* row, int64_t head_dim, float* out) {
  for (int64_t d = 0; d < head_dim; d += 32) {
    const V16Pair codes = load_e4m3_by_memory(row + d);
    const V16 scale = set16(e8m0(row[head_dim + d / 32])), bias = set16(256.f);
    store16(out + d, mul(mul(codes.first, bias), scale));
    store16(out + d + 16, mul(mul(codes.second, bias), scale));
  }
}

void unpack_fp4(const uint8_t* row, int64_t head_dim, float* out) {
  const uint8_t* scales = row + head_dim / 2;
  for (int64_t d = 0; d < head_dim; d += 32) {
    const V16Pair codes = load_e2m1(row + d / 2, 1.f);
    store16(out + d, mul(codes.first, set16(kE4m3Values.of_code[scales[d / 16]])));
    store16(out + d + 16, mul(codes.second, set16(kE4m3Values.of_code[scales[d / 16 + 1]])));
  }
}

void unpack_bf16(const uint8_t* row, int64_t head_dim, float* out) {
  for (int64_t d = 0; d < head_dim; d += 16) store16(out + d, load_bf16(reinterpret_cast<const uint16_t*>(row) + d));
}

void dots(const float* q, int64_t heads, int64_t head_dim, const float* entries, int64_t count, float* scores) {
  panel(q, heads, head_dim, entries, count, head_dim, scores, kBlock);
}

// Head by head, but for what all heads can do in one register.
void softmax(float* scores, int64_t heads, float scale, float* highest, float* sum, float* decay) {
  constexpr int kVectors = kBlock / 16;
  alignas(64) float now[kHeadsMost] = {}, totals[kHeadsMost] = {};
  for (int64_t h = 0; h < heads; ++h) {
    V16 most = set16(highest[h]);
    for (int i = 0; i < kVectors; ++i) {
      const V16 s = mul(set16(scale), load16(scores + h * kBlock + 16 * i));
      store16(scores + h * kBlock + 16 * i, s);
      most = max(most, s);
    }
    now[h] = largest(most);
  }
  const V16 decays = exp16(sub(load16(highest), load16(now)));
  for (int64_t h = 0; h < heads; ++h) {
    V16 total = zero16();
    for (int i = 0; i < kVectors; ++i) {
      float* at = scores + h * kBlock + 16 * i;
      const V16 p = exp16(sub(load16(at), set16(now[h])));
      total = add(total, p);
      store16(at, round_bf16(p));
    }
    totals[h] = fold(total);
  }
  store16(sum, add(mul(load16(sum), decays), load16(totals)));
  store16(highest, load16(now));
  store16(decay, decays);
}

template <int kHeads, int kVectors>
void accumulate_tile(const float* probabilities, const float* decay, const float* entries, int64_t count,
                     int64_t head_dim, float* acc) {
  V16 sums[kHeads][kVectors];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[h][v] = mul(load16(acc + h * head_dim + 16 * v), set16(decay[h]));
  for (int64_t e = 0; e < count; ++e) {
    V16 values[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) values[v] = load16(entries + e * head_dim + 16 * v);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const V16 p = set16(probabilities[h * kBlock + e]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[h][v] = add_exact_product(sums[h][v], p, values[v]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store16(acc + h * head_dim + 16 * v, sums[h][v]);
}

void accumulate(const float* probabilities, const float* decay, const float* entries, int64_t count, int64_t heads,
                int64_t head_dim, float* acc) {
  for (int64_t d = 0; d < head_dim; d += 32) {
    int64_t h = 0;
    for (; h + kAccumulateHeads <= heads; h += kAccumulateHeads)
      accumulate_tile<kAccumulateHeads, 2>(probabilities + h * kBlock, decay + h, entries + d, count, head_dim,
                                           acc + h * head_dim + d);
    for (; h < heads; ++h)
      accumulate_tile<1, 2>(probabilities + h * kBlock, decay + h, entries + d, count, head_dim,
                            acc + h * head_dim + d);
  }
}

void divide(const float* acc, float denominator, int64_t head_dim, uint16_t* out) {
  for (int64_t d = 0; d < head_dim; d += 16) store_bf16(out + d, div(load16(acc + d), set16(denominator)));
}

constexpr AttentionKernels kAttentionKernels = {unpack_fp8, unpack_fp4, unpack_bf16, dots, softmax, accumulate, divide};

}  // namespace
}  // namespace deepinfer
