// SPDX-License-Identifier: MIT
// Bodies of IndexerKernels over V16 lanes; the including file has chosen the lanes. Products of e2m1 values are exact.
#pragma once

#include <cstring>

#include "kernels/indexer/cpu/indexer_kernels.h"

namespace deepinfer {
namespace {

float e8m0(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

void load_key(const uint8_t* row, int64_t head_dim, float* key) {
  for (int64_t k = 0; k < head_dim; k += 32) {
    const V16Pair values = load_e2m1(row + k / 2, e8m0(row[head_dim / 2 + k / 32]));
    store16(key + k, values.first);
    store16(key + k + 16, values.second);
  }
}

// Four keys at a time, each in one lane of the score vector.
__m128 round4(__m128 x) {
  const __m128i u = _mm_castps_si128(x), odd = _mm_and_si128(_mm_srli_epi32(u, 16), _mm_set1_epi32(1));
  const __m128i r = _mm_add_epi32(_mm_add_epi32(u, _mm_set1_epi32(0x7FFF)), odd);
  return _mm_castsi128_ps(_mm_and_si128(r, _mm_set1_epi32(-0x10000)));
}

__m128 add_head(__m128 sum, __m128 dot, float weight, bool round_steps) {
  if (round_steps) dot = round4(dot);
  const __m128 term = _mm_mul_ps(_mm_max_ps(dot, _mm_setzero_ps()), _mm_set1_ps(weight));
  return _mm_add_ps(sum, round_steps ? round4(term) : term);
}

template <int kHeads>
__m128 add_heads(__m128 sum, const float* q, const float* weight, int64_t head_dim, const float* keys,
                 bool round_steps) {
  V16 acc[kHeads][4];
  for (auto& row : acc)
    for (V16& a : row) a = zero16();
  for (int64_t k = 0; k < head_dim; k += 16) {
    V16 key[4];
#pragma GCC unroll 8
    for (int j = 0; j < 4; ++j) key[j] = load16(keys + j * head_dim + k);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const V16 x = load16(q + h * head_dim + k);
#pragma GCC unroll 8
      for (int j = 0; j < 4; ++j) acc[h][j] = add_exact_product(acc[h][j], x, key[j]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h)
    sum = add_head(sum, fold4(acc[h][0], acc[h][1], acc[h][2], acc[h][3]), weight[h], round_steps);
  return sum;
}

void score(const float* q, const float* weight, int64_t heads, int64_t head_dim, const uint8_t* rows,
           int64_t row_stride, int64_t count, bool round_steps, float* keys, float* scores) {
  for (int64_t first = 0; first < count; first += 4) {
    const int64_t size = count - first < 4 ? count - first : 4;
    for (int64_t j = 0; j < 4; ++j)
      load_key(rows + (first + (j < size ? j : 0)) * row_stride, head_dim, keys + j * head_dim);
    __m128 sum = _mm_setzero_ps();
    int64_t h = 0;
    for (; h + kIndexHeads <= heads; h += kIndexHeads)
      sum = add_heads<kIndexHeads>(sum, q + h * head_dim, weight + h, head_dim, keys, round_steps);
    for (; h < heads; ++h) sum = add_heads<1>(sum, q + h * head_dim, weight + h, head_dim, keys, round_steps);
    float four[4];
    _mm_storeu_ps(four, round_steps ? round4(sum) : sum);
    for (int64_t j = 0; j < size; ++j) scores[first + j] = four[j];
  }
}

constexpr IndexerKernels kIndexerKernels = {score};

}  // namespace
}  // namespace deepinfer
