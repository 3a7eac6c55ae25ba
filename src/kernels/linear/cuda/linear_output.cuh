// SPDX-License-Identifier: MIT
// Where the sums of a linear go.
#pragma once

#include "kernels/linear/cuda/turned_sums.cuh"
#include "kernels/linear/linear.h"

namespace deepinfer {

struct LinearOutput {
  int32_t num_rows, num_out;
  Bf16Vector bias;
  View<bf16, dim::rows, dim::out> out;
  View<float, dim::rows, dim::out> out_f32;
  bool add, is_aligned;  // the latter: of out, for eight bytes at a time
};

inline LinearOutput linear_output(const LinearParams& p) {
  return {.num_rows = static_cast<int32_t>(p.x.size[0]),
          .num_out = static_cast<int32_t>(num_outputs(p.weight)),
          .bias = p.bias,
          .out = p.out,
          .out_f32 = p.out_f32,
          .add = p.add,
          .is_aligned = reinterpret_cast<uintptr_t>(p.out.data) % 8 == 0 && p.out.stride[0] % 4 == 0};
}

// Of a tile of 16 outputs a warp from `first_out` on and kTokens rows from first_row on, as warpgroup products give them:
// the sums of those eights of rows that `is_mine` names.
template <int kTokens, typename IsMine>
__device__ void write_sums(const LinearOutput& a, int first_row, int first_out, float (&sums)[kTokens / 2],
                           const IsMine& is_mine) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, c = static_cast<int>(threadIdx.x) % 4,
            out = first_out + static_cast<int>(threadIdx.x) / 32 * 16;
  if (!a.bias.empty()) {
    const float low = out + g < a.num_out ? a.bias[out + g] : 0.f, high = out + g + 8 < a.num_out ? a.bias[out + g + 8] : 0.f;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) sums[i] += i % 4 < 2 ? low : high;
  }
  if (a.out_f32.data) {
    const auto each = [&](const auto& call) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        const int row = first_row + i / 4 * 8 + 2 * c + i % 2, o = out + g + i % 4 / 2 * 8;
        if (is_mine(i / 4) && row < a.num_rows && o < a.num_out) call(a.out_f32(row, o), sums[i]);
      }
    };
    if (a.add) each([](const float& y, float& sum) { sum = y + sum; });  // all are read before the first is written
    each([](float& y, float sum) { y = sum; });
    return;
  }
  emit_fours<kTokens>(sums, is_mine, [&](int token, int o, uint2 four) {
    const int row = first_row + token, first = out + o;
    if (row >= a.num_rows || first >= a.num_out) return;
    bf16* to = &a.out(row, first);
    if (a.is_aligned && first + 4 <= a.num_out) {
      *reinterpret_cast<uint2*>(to) = four;
      return;
    }
    const uint16_t bits[4] = {static_cast<uint16_t>(four.x), static_cast<uint16_t>(four.x >> 16),
                              static_cast<uint16_t>(four.y), static_cast<uint16_t>(four.y >> 16)};
    for (int i = 0; i < 4 && first + i < a.num_out; ++i) to[i] = {bits[i]};
  });
}

}  // namespace deepinfer
