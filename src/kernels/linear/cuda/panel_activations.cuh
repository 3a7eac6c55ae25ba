// SPDX-License-Identifier: MIT
// Rows of bf16 to panels (panel.cuh), rounded to e4m3 with a scale per 32 columns where asked for, as
// quantize/rounding.h rounds; the values stay bf16, which holds them exactly.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/linear/cuda/overlapped_launch.cuh"
#include "kernels/linear/cuda/panel.cuh"
#include "kernels/quantize/rounding.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

__device__ inline float2 widen_pair(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}

// Eight columns, rounded with the scale of the largest magnitude `amax` of their 32.
__device__ inline uint4 round_to_e4m3(const uint4& eight, float amax) {
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
__device__ inline float largest_of_pair(uint32_t two) {
  const float2 x = widen_pair(two);
  return fmaxf(fabsf(x.x), fabsf(x.y));
}
__device__ inline float largest_of(const uint4& eight) {
  return fmaxf(fmaxf(largest_of_pair(eight.x), largest_of_pair(eight.y)),
               fmaxf(largest_of_pair(eight.z), largest_of_pair(eight.w)));
}
// Four neighbouring threads have the 32 columns of a scale.
__device__ inline uint4 round_to_e4m3_by_four(const uint4& eight) {
  float amax = largest_of(eight);
  amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, 2));
  return round_to_e4m3(eight, amax);
}

// Eight columns in the order that a word of e2m1 codes is unpacked in: 0 4 1 5 2 6 3 7.
__device__ inline uint4 in_fp4_order(const uint4& v) {
  return {__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410),
          __byte_perm(v.y, v.w, 0x7632)};
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
};

inline constexpr int kPanelThreads = 256, kPanelSpan = 256;  // columns of a block: eight of a thread's row

// Rows of source(row of the panel): null for padding. blockIdx: x group of eight rows, y span of columns, z linear group.
template <WeightKind kKind, typename Source>
__device__ void make_panels(const PanelActivations& a, const Source& source) {
  __shared__ alignas(16) uint8_t panels[kPanelSpan / kPanelColumns][kGroupBytes];
  const int r = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int column = static_cast<int>(blockIdx.y) * kPanelSpan + 8 * lane;
  const bf16* row = source(int64_t{blockIdx.x} * 8 + r);
  uint4 eight{0, 0, 0, 0};
  if (row && column < a.columns) eight = load_eight(row + int64_t{blockIdx.z} * a.columns + column, a.is_aligned);
  if (a.round) eight = round_to_e4m3_by_four(eight);
  if constexpr (kKind == WeightKind::kFp4) eight = in_fp4_order(eight);
  const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // the columns of a pair are neighbours in the panel, too
    const int place = panel_place<kKind>(8 * (lane % 16) + (kKind == WeightKind::kFp4 ? i : 2 * i));
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

// Rows of bf16 to rows of bf16, rounded, in order or as in_fp4_order has it.
struct RoundedRows {
  const bf16* x;
  int64_t row_stride, columns;  // a multiple of 32
  bf16* out;                    // [rows, columns]
  bool is_aligned, for_fp4;
};
static __global__ void __launch_bounds__(kPanelThreads) rounded_rows_kernel(RoundedRows a) {
  let_kernels_behind_begin();
  wait_for_kernels_before();
  const int64_t column = 8 * (int64_t{blockIdx.y} * kPanelThreads + threadIdx.x);
  const bool exists = column < a.columns;
  const uint4 eight = exists ? load_eight(a.x + blockIdx.x * a.row_stride + column, a.is_aligned) : uint4{0, 0, 0, 0};
  uint4 rounded = round_to_e4m3_by_four(eight);
  if (a.for_fp4) rounded = in_fp4_order(rounded);
  if (exists) *reinterpret_cast<uint4*>(a.out + blockIdx.x * a.columns + column) = rounded;
}
inline void launch_rounded_rows(const ExecutionContext& context, const RoundedRows& a, int64_t rows) {
  const dim3 grid(num_blocks(rows, 1), num_blocks(a.columns, 8 * kPanelThreads));
  launch_overlapped(context, {grid, kPanelThreads}, rounded_rows_kernel, a);
}

}  // namespace deepinfer
