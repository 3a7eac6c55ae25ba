// SPDX-License-Identifier: MIT
// Packed weights of a thread to the registers of a 16-column product (the A operand of mma.sync m16n8k16 and of wgmma
// are alike): rows g and g + 8, columns as panel.cuh places them. Exact: a code times its scale is a bf16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/linear/cuda/lane_tile.cuh"

namespace deepinfer {

__device__ inline uint32_t times_pair(uint32_t pair, uint32_t by) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(by));
  return product;
}

// A scale 2^(code - 127) and what a code's bits, put into a bf16's exponent and mantissa, lack (2^120 for e4m3, 2^126
// for e2m1), as one factor twice; what goes beyond bf16 is left to `rest`, 1 for every real model.
struct ScaleFactor {
  uint32_t pair, rest;
};
inline constexpr uint32_t kBf16One = 0x3F80;
template <int kBias>
__device__ ScaleFactor scale_factor(uint32_t code) {
  const uint32_t exponent = code + kBias, first = min(exponent, 254u);
  return {(first << 7) * 0x10001u, (127 + exponent - first) << 7};
}

// One panel's weights of both rows: 16 codes of e4m3, 16 bf16, or, of e2m1, 32 codes of two panels.
template <WeightKind kKind>
struct PackedWeights {
  static constexpr int kWords = kKind == WeightKind::kBf16 ? 2 : 1;
  uint4 low[kWords], high[kWords];
  ScaleFactor low_scale, high_scale;

  __device__ void set_scales(uint32_t low_code, uint32_t high_code) {
    constexpr int kBias = kKind == WeightKind::kFp4 ? 126 : 120;
    low_scale = scale_factor<kBias>(low_code), high_scale = scale_factor<kBias>(high_code);
  }
  // Not zero where a scale goes beyond its factor: then unpack_rest is needed.
  __device__ uint32_t rest() const { return (low_scale.rest ^ kBf16One) | (high_scale.rest ^ kBf16One); }
};

__device__ inline void unpack_four(const PackedWeights<WeightKind::kFp8>& w, uint32_t low, uint32_t high, uint32_t (&a)[4]) {
  const auto pair = [](uint32_t codes, uint32_t select, uint32_t scale) {
    const uint32_t two = __byte_perm(codes, 0, select);
    return times_pair((two & 0x80008000u) | (two >> 4 & 0x07F007F0u), scale);
  };
  a[0] = pair(low, 0x1404, w.low_scale.pair), a[1] = pair(high, 0x1404, w.high_scale.pair);
  a[2] = pair(low, 0x3424, w.low_scale.pair), a[3] = pair(high, 0x3424, w.high_scale.pair);
}

// Half a word's nibbles: pairs (i, i + 4) for i = first, first + 1.
__device__ inline void unpack_four(const PackedWeights<WeightKind::kFp4>& w, uint32_t low, uint32_t high, int first,
                                   uint32_t (&a)[4]) {
  const auto pair = [](uint32_t codes, int i, uint32_t scale) {
    const uint32_t sign = codes << (12 - 4 * i), value = i < 2 ? codes << (6 - 4 * i) : codes >> (4 * i - 6);
    return times_pair((sign & 0x80008000u) | (value & 0x01C001C0u), scale);
  };
  a[0] = pair(low, first, w.low_scale.pair), a[1] = pair(high, first, w.high_scale.pair);
  a[2] = pair(low, first + 1, w.low_scale.pair), a[3] = pair(high, first + 1, w.high_scale.pair);
}

__device__ inline uint32_t word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Panel `half` of the chunk: the registers of its four products, but for unpack_rest.
template <WeightKind kKind>
__device__ void unpack_panel(const PackedWeights<kKind>& w, int half, uint32_t (&a)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if constexpr (kKind == WeightKind::kBf16) {
      // Times one: ptxas overlaps products only with registers that arithmetic has made, not loads.
      const int first = 2 * (k % 2);
      constexpr uint32_t kOnes = kBf16One * 0x10001u;
      a[k][0] = times_pair(word_of(w.low[k / 2], first), kOnes), a[k][1] = times_pair(word_of(w.high[k / 2], first), kOnes);
      a[k][2] = times_pair(word_of(w.low[k / 2], first + 1), kOnes);
      a[k][3] = times_pair(word_of(w.high[k / 2], first + 1), kOnes);
    } else if constexpr (kKind == WeightKind::kFp8) {
      unpack_four(w, word_of(w.low[0], k), word_of(w.high[0], k), a[k]);
    } else {
      const int word = 2 * half + k / 2;
      unpack_four(w, word_of(w.low[0], word), word_of(w.high[0], word), 2 * (k % 2), a[k]);
    }
  }
}
template <WeightKind kKind>
__device__ void unpack_rest(const PackedWeights<kKind>& w, uint32_t (&a)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = times_pair(a[k][i], (i % 2 == 0 ? w.low_scale : w.high_scale).rest * 0x10001u);
}

}  // namespace deepinfer
