// SPDX-License-Identifier: MIT
// Sums of warpgroup products (warpgroup_product.cuh) as rows of bf16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace deepinfer {

__device__ inline uint32_t transpose_pairs(uint32_t pairs) {
  uint32_t turned;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pairs));
  return turned;
}
__device__ inline uint32_t round_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Sums as rows of bf16: emit(token, output of the warp's sixteen, four neighbouring outputs), for eight tokens at a time
// as far as is_mine(eight), which all threads answer alike.
template <int kTokens, typename IsMine, typename Emit>
__device__ void emit_fours(const float (&sums)[kTokens / 2], const IsMine& is_mine, const Emit& emit) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, c = static_cast<int>(threadIdx.x) % 4;
  const bool is_odd = c % 2 == 1;
#pragma unroll
  for (int i = 0; i < kTokens / 8; ++i) {
    if (!is_mine(i)) continue;
    const uint32_t low = transpose_pairs(round_pair(sums[4 * i], sums[4 * i + 1]));
    const uint32_t high = transpose_pairs(round_pair(sums[4 * i + 2], sums[4 * i + 3]));
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, is_odd ? low : high, 1);
    emit(8 * i + g, is_odd ? 8 + 2 * (c - 1) : 2 * c, is_odd ? uint2{other, high} : uint2{low, other});
  }
}

}  // namespace deepinfer
