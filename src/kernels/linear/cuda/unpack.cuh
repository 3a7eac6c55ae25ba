// SPDX-License-Identifier: MIT
// Packed weights of a thread to the registers of a 16-column product (the A operand of mma.sync m16n8k16 and of wgmma
// are alike): rows g and g + 8, columns as panel.cuh places them. Exact: a code times its scale is a bf16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/linear/cuda/lane_tile.cuh"
#include "kernels/quantize/cuda/unpack_pairs.cuh"

namespace deepinfer {

inline constexpr uint32_t kBf16One = 0x3F80;

// One panel's weights of both rows: 16 codes of e4m3, 16 bf16, or, of e2m1, 32 codes of two panels.
template <WeightKind kKind>
struct PackedWeights {
  static constexpr int kWords = kKind == WeightKind::kBf16 ? 2 : 1;
  // What a code's bits, put into a bf16's exponent and mantissa, lack: 2^126 of e2m1, 2^120 of e4m3.
  static constexpr uint32_t kLack = kKind == WeightKind::kFp4 ? 126 : 120, kMost = 254 - kLack;
  uint4 low[kWords], high[kWords];
  uint32_t low_code, high_code;  // of the rows' scales 2^(code - 127); bf16: ones that ptxas does not see through

  __device__ void set_scales(uint32_t of_low, uint32_t of_high) { low_code = of_low, high_code = of_high; }
  // Scale and lack as one factor, twice.
  __device__ static uint32_t factor(uint32_t code) { return (code + kLack) * 0x00800080u; }
  // Whether a scale's factor goes beyond bf16, as no real model's does: then unpack_beyond is needed.
  __device__ bool is_beyond() const { return kKind != WeightKind::kBf16 && max(low_code, high_code) > kMost; }
};

__device__ inline uint32_t word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Panel `half` of the chunk: the registers of its four products.
template <WeightKind kKind>
__device__ void unpack_panel(const PackedWeights<kKind>& w, int half, uint32_t (&a)[4][4]) {
  const uint32_t low = w.factor(w.low_code), high = w.factor(w.high_code);
  if constexpr (kKind == WeightKind::kFp4) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 l = unpack_e2m1(word_of(w.low[0], 2 * half + i), low), h = unpack_e2m1(word_of(w.high[0], 2 * half + i), high);
      a[2 * i][0] = l.x, a[2 * i][1] = h.x, a[2 * i][2] = l.y, a[2 * i][3] = h.y;
      a[2 * i + 1][0] = l.z, a[2 * i + 1][1] = h.z, a[2 * i + 1][2] = l.w, a[2 * i + 1][3] = h.w;
    }
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint2 l, h;
      if constexpr (kKind == WeightKind::kFp8) {
        l = unpack_e4m3(word_of(w.low[0], k), low), h = unpack_e4m3(word_of(w.high[0], k), high);
      } else {
        // Times one: ptxas overlaps products only with registers that arithmetic has made, not loads.
        const int first = 2 * (k % 2);
        l = {multiply_two(word_of(w.low[k / 2], first), w.low_code), multiply_two(word_of(w.low[k / 2], first + 1), w.low_code)};
        h = {multiply_two(word_of(w.high[k / 2], first), w.low_code), multiply_two(word_of(w.high[k / 2], first + 1), w.low_code)};
      }
      a[k][0] = l.x, a[k][1] = h.x, a[k][2] = l.y, a[k][3] = h.y;
    }
  }
}
// The same where is_beyond(), in two factors.
template <WeightKind kKind>
__device__ void unpack_beyond(PackedWeights<kKind> w, int half, uint32_t (&a)[4][4]) {
  const auto rest = [&](uint32_t& code) {
    const uint32_t first = min(code, w.kMost), more = code - first;
    code = first;
    return (127 + more) * 0x00800080u;
  };
  const uint32_t low = rest(w.low_code), high = rest(w.high_code);
  unpack_panel(w, half, a);
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = multiply_two(a[k][i], i % 2 == 0 ? low : high);
}

}  // namespace deepinfer
