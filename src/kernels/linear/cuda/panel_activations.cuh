// SPDX-License-Identifier: MIT
// Rows of bf16 to panels (panel.cuh), rounded to e4m3 with a scale per 32 columns where asked for, as
// quantize/rounding.h rounds; the values stay bf16, which holds them exactly.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/lanes/cuda/overlapped_launch.cuh"
#include "kernels/linear/cuda/panel.cuh"
#include "kernels/quantize/cuda/unpack_pairs.cuh"
#include "kernels/quantize/rounding.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

__device__ inline float2 widen_pair(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}

__device__ inline uint32_t add_two(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
__device__ inline uint32_t subtract_two(uint32_t a, uint32_t b) {
  uint32_t rest;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(rest) : "r"(a), "r"(b));
  return rest;
}
__device__ inline uint32_t largest_two(uint32_t a, uint32_t b) {
  uint32_t both;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
  return both;
}

// Eight columns, rounded with the scale of the largest magnitude `amax` of their 32, below 2^120. e4m3 keeps three bits of
// a mantissa, or multiples of 2^-9 of the scale: what a bf16 has left where 2^(e + 4), or 2^-2 of the scale if that is
// more, is added. Taking that away again is exact: values as of quantize/rounding.h, but zero has no sign.
__device__ inline uint4 round_below_2_120(const uint4& eight, float amax) {
  const uint32_t least = ((uint32_t{fp8_block_scale(amax)} - 2) << 7) * 0x10001u;
  const auto pair = [&](uint32_t two) {
    const uint32_t above = __vmaxu2((two & 0x7F807F80u) + 0x02000200u, least) | (two & 0x80008000u);
    return subtract_two(add_two(two, above), above);
  };
  return {pair(eight.x), pair(eight.y), pair(eight.z), pair(eight.w)};
}
// The same for any magnitude, through e4m3 itself.
static __device__ __noinline__ uint4 round_through_e4m3(uint4 eight, float amax) {
  const uint8_t code = fp8_block_scale(amax);
  const float scale = e8m0_to_float(code), inverse = e8m0_to_float(static_cast<uint8_t>(254 - code));  // exact
  const auto pair = [&](uint32_t two) {
    const float2 x = widen_pair(two);
    const __nv_fp8x2_storage_t codes =
        __nv_cvt_float2_to_fp8x2({x.x * inverse, x.y * inverse}, __NV_SATFINITE, __NV_E4M3);
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
    const float2 y = __half22float2(*reinterpret_cast<const __half2*>(&halves));
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(y.x * scale, y.y * scale);
    return *reinterpret_cast<const uint32_t*>(&rounded);
  };
  return {pair(eight.x), pair(eight.y), pair(eight.z), pair(eight.w)};
}
// Four neighbouring threads have the 32 columns of a scale.
__device__ inline uint4 round_to_e4m3_by_four(const uint4& eight) {
  constexpr uint32_t kMagnitudes = 0x7FFF7FFFu;
  uint32_t most = largest_two(largest_two(eight.x & kMagnitudes, eight.y & kMagnitudes),
                              largest_two(eight.z & kMagnitudes, eight.w & kMagnitudes));
  most = largest_two(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
  most = largest_two(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
  const float amax = __uint_as_float(max(most << 16, most & 0xFFFF0000u));
  return amax < 0x1p120f ? round_below_2_120(eight, amax) : round_through_e4m3(eight, amax);
}

// Eight columns in the order that weights are unpacked in: e2m1 0 4 1 5 2 6 3 7, e4m3 0 2 1 3 4 6 5 7.
template <WeightKind kKind>
__device__ uint4 in_pairs(const uint4& v) {
  if constexpr (kKind == WeightKind::kFp4) return permute_eight(v);
  else if constexpr (kKind == WeightKind::kFp8)
    return {__byte_perm(v.x, v.y, 0x5410), __byte_perm(v.x, v.y, 0x7632), __byte_perm(v.z, v.w, 0x5410),
            __byte_perm(v.z, v.w, 0x7632)};
  else return v;
}

__device__ inline uint4 load_eight(const bf16* x, bool is_aligned) {
  if (is_aligned) return *reinterpret_cast<const uint4*>(x);
  const auto pair = [&](int i) { return x[i].bits | uint32_t{x[i + 1].bits} << 16; };
  return {pair(0), pair(2), pair(4), pair(6)};
}

struct PanelActivations {
  const bf16* x = nullptr;
  int64_t row_stride = 0, num_rows = 0;
  int32_t columns = 0;       // of a linear group: a multiple of 128; group z begins at x + z * columns
  int64_t num_groups = 0;    // of eight rows
  bool round = false, is_aligned = false;  // x and row_stride allow 16-byte reads
  uint8_t* out = nullptr;    // panels of linear group z from z * columns / 64 * num_groups * kGroupBytes on
  uint32_t* counters = nullptr;  // of the kernels behind, set to zero
  int32_t num_counters = 0;
};

inline constexpr int kPanelThreads = 256, kPanelSpan = 256;  // columns of a block: eight of a thread's row

// Rows of source(row of the panel): null for padding. blockIdx: x group of eight rows, y span of columns, z linear group.
template <WeightKind kKind, typename Source>
__device__ void make_panels(const PanelActivations& a, const Source& source) {
  __shared__ alignas(16) uint8_t panels[kPanelSpan / kPanelColumns][kGroupBytes];
  const int r = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int column = static_cast<int>(blockIdx.y) * kPanelSpan + 8 * lane;
  if (blockIdx.x + blockIdx.y + blockIdx.z == 0)
    for (int i = static_cast<int>(threadIdx.x); i < a.num_counters; i += kPanelThreads) a.counters[i] = 0;
  const bf16* row = source(int64_t{blockIdx.x} * 8 + r);
  uint4 eight{0, 0, 0, 0};
  if (row && column < a.columns) eight = load_eight(row + int64_t{blockIdx.z} * a.columns + column, a.is_aligned);
  if (a.round) eight = round_to_e4m3_by_four(eight);
  eight = in_pairs<kKind>(eight);
  const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // the columns of a pair are neighbours in the panel, too
    const int place = panel_place<kKind>(8 * (lane % 16) + first_of_pair<kKind>(i));
    uint8_t* to = panels[lane / 16 * 2 + place / 64] + panel_byte(r, place % 64);
    *reinterpret_cast<uint32_t*>(to) = pairs[i];
  }
  __syncthreads();
  const int panel = static_cast<int>(threadIdx.x) / 64, unit = static_cast<int>(threadIdx.x) % 64;
  const int64_t place = (int64_t{blockIdx.z} * a.columns + blockIdx.y * kPanelSpan) / kPanelColumns + panel;
  if (static_cast<int>(blockIdx.y) * kPanelSpan + panel * kPanelColumns < a.columns)
    *reinterpret_cast<uint4*>(a.out + (place * a.num_groups + blockIdx.x) * kGroupBytes + 16 * unit) =
        *reinterpret_cast<const uint4*>(panels[panel] + 16 * unit);
}

template <WeightKind kKind>
__global__ void __launch_bounds__(kPanelThreads) panels_kernel(PanelActivations a) {
  let_kernels_behind_begin();
  wait_for_kernels_before();
  make_panels<kKind>(a, [&](int64_t row) { return row < a.num_rows ? a.x + row * a.row_stride : nullptr; });
}

}  // namespace deepinfer
