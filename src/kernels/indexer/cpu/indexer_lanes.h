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

template <int kHeads>
void dots(const float* q, int64_t head_dim, const float* key, float* out) {
  V16 acc[kHeads];
#pragma GCC unroll 8
  for (V16& a : acc) a = zero16();
  for (int64_t k = 0; k < head_dim; k += 16) {
    const V16 x = load16(key + k);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) acc[h] = add_exact_product(acc[h], load16(q + h * head_dim + k), x);
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) out[h] = fold(acc[h]);
}

float rounded(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

float weighted(float sum, float dot, float weight, bool round_steps) {
  if (round_steps) dot = rounded(dot);
  const float term = (dot > 0 ? dot : 0.f) * weight;
  return sum + (round_steps ? rounded(term) : term);
}

void score(const float* q, const float* weight, int64_t heads, int64_t head_dim, const uint8_t* rows, int64_t row_stride, int64_t count,
           bool round_steps, float* key, float* scores) {
  for (int64_t j = 0; j < count; ++j) {
    load_key(rows + j * row_stride, head_dim, key);
    float sum = 0, dot[4];
    int64_t h = 0;
    for (; h + 4 <= heads; h += 4) {
      dots<4>(q + h * head_dim, head_dim, key, dot);
      for (int i = 0; i < 4; ++i) sum = weighted(sum, dot[i], weight[h + i], round_steps);
    }
    for (; h < heads; ++h) {
      dots<1>(q + h * head_dim, head_dim, key, dot);
      sum = weighted(sum, dot[0], weight[h], round_steps);
    }
    scores[j] = round_steps ? rounded(sum) : sum;
  }
}

constexpr IndexerKernels kIndexerKernels = {score};

}  // namespace
}  // namespace deepinfer
