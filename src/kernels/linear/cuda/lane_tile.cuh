// SPDX-License-Identifier: MIT
// Products of activations and packed weights with the sums of lanes/lanes.h, for linear and experts.
//
// A block of kTileThreads threads makes kTileOut outputs of up to kRows rows. Four threads share an output: thread j has
// lanes 4j..4j+3, so a step takes sixteen columns. Weights and activations come through shared memory in chunks of
// kChunk columns, kStages of them in flight, and weights stay packed until they are multiplied. Products are exact in
// fp32, so a fused multiply-add gives the reference's bits. Nothing here depends on the number of rows.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "tensor/float8.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

enum class WeightKind { kBf16, kFp8, kFp4 };

// A matrix as kernels see it.
struct DeviceMatrix {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  int32_t out = 0, in = 0;
};

inline constexpr int kTileThreads = 128, kTileOut = 32, kChunk = 128, kStages = 4, kThreadsPerOut = 4;

__host__ __device__ constexpr int64_t padded_columns(int64_t in) { return (in + kChunk - 1) / kChunk * kChunk; }

template <WeightKind kKind>
struct Packing {
  static constexpr int kChunkBytes = kKind == WeightKind::kBf16  ? 2 * kChunk
                                     : kKind == WeightKind::kFp8 ? kChunk
                                                                 : kChunk / 2;
  static constexpr int kRowBytes = kChunkBytes + 16;  // padded: rows fall into different banks
  static constexpr int kScalesPerChunk = kKind == WeightKind::kBf16 ? 0 : kChunk / 32;
  __host__ __device__ static constexpr int64_t bytes(int64_t columns) {
    return kKind == WeightKind::kBf16 ? 2 * columns : kKind == WeightKind::kFp8 ? columns : columns / 2;
  }
};

template <WeightKind kKind, int kRows>
struct TileStage {
  float x[kRows][kChunk];
  uint8_t weights[kTileOut][Packing<kKind>::kRowBytes];
  uint8_t scales[kTileOut][4];
};

// Where a tile's activations stand: fp32 rows of padded_columns(in), zero beyond `in`. Row r of the tile is row
// first + r, or list[first + r] where there is a list.
struct TileRows {
  const float* x;
  int64_t stride;
  const int32_t* list;
  int64_t first;
  int num_rows;

  __device__ const float* row(int r) const { return x + (list ? list[first + r] : first + r) * stride; }
};

// Copies bytes [begin, begin + 16) of a row of `row_bytes` bytes, zeros beyond it.
__device__ inline void stage_bytes(uint8_t* to, const uint8_t* row, int64_t begin, int64_t row_bytes, bool is_aligned) {
  const int64_t left = row_bytes - begin;
  if (is_aligned && left >= 16) {
    __pipeline_memcpy_async(to, row + begin, 16);
    return;
  }
  for (int i = 0; i < 16; ++i) to[i] = i < left ? row[begin + i] : 0;
}

template <WeightKind kKind, int kRows>
__device__ void stage_chunk(TileStage<kKind, kRows>& stage, const DeviceMatrix& m, int64_t out_begin, int64_t chunk,
                            const TileRows& rows) {
  using P = Packing<kKind>;
  const int64_t row_bytes = P::bytes(m.in), begin = chunk * P::kChunkBytes;
  const bool is_aligned = row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(m.codes) % 16 == 0;
  constexpr int kPieces = P::kChunkBytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < kTileOut * kPieces; i += kTileThreads) {
    const int o = i / kPieces, piece = i % kPieces;
    const bool exists = out_begin + o < m.out;
    stage_bytes(&stage.weights[o][16 * piece], m.codes + (exists ? (out_begin + o) * row_bytes : 0),
                begin + 16 * piece, exists ? row_bytes : 0, is_aligned);
  }
  if constexpr (P::kScalesPerChunk > 0) {
    const int o = static_cast<int>(threadIdx.x) / 4, block = static_cast<int>(threadIdx.x) % 4;
    const int64_t columns = (m.in + 31) / 32, column = chunk * 4 + block, row = out_begin + o;
    const int64_t scale_row = kKind == WeightKind::kFp8 ? row / 32 : row;
    stage.scales[o][block] = row < m.out && column < columns ? m.scales[scale_row * columns + column] : 127;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunk / 4; i += kTileThreads) {
    const int r = i / (kChunk / 4), piece = i % (kChunk / 4);
    float* to = &stage.x[r][4 * piece];
    if (r < rows.num_rows) __pipeline_memcpy_async(to, rows.row(r) + chunk * kChunk + 4 * piece, 16);
    else *reinterpret_cast<float4*>(to) = float4{0, 0, 0, 0};
  }
}

__device__ inline float4 widen_halves(uint32_t low, uint32_t high) {
  const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&low));
  const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&high));
  return {a.x, a.y, b.x, b.y};
}

// The four weights of a thread at one step, before the scale.
template <WeightKind kKind>
__device__ float4 load_weights(const uint8_t* row, int step, int j) {
  if constexpr (kKind == WeightKind::kBf16) {
    const uint2 four = *reinterpret_cast<const uint2*>(row + 32 * step + 8 * j);
    return {__uint_as_float(four.x << 16), __uint_as_float(four.x & 0xFFFF0000u), __uint_as_float(four.y << 16),
            __uint_as_float(four.y & 0xFFFF0000u)};
  } else if constexpr (kKind == WeightKind::kFp8) {
    const uint32_t four = *reinterpret_cast<const uint32_t*>(row + 16 * step + 4 * j);
    const __half2_raw low = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(four & 0xFFFF), __NV_E4M3);
    const __half2_raw high = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(four >> 16), __NV_E4M3);
    return widen_halves(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
  } else {
    // A nibble's exponent and mantissa in a half's are its value times 2^-14, also where the half is subnormal.
    const uint32_t four = *reinterpret_cast<const uint16_t*>(row + 8 * step + 2 * j);
    const uint32_t first = (four & 0xF) | (four & 0xF0) << 12, second = (four >> 8 & 0xF) | (four & 0xF000) << 4;
    const uint32_t low = (first & 0x00070007u) << 9 | (first & 0x00080008u) << 12;
    const uint32_t high = (second & 0x00070007u) << 9 | (second & 0x00080008u) << 12;
    const __half2 two_to_14 = __half2half2(__ushort_as_half(0x7400));
    const float2 a = __half22float2(__hmul2(*reinterpret_cast<const __half2*>(&low), two_to_14));
    const float2 b = __half22float2(__hmul2(*reinterpret_cast<const __half2*>(&high), two_to_14));
    return {a.x, a.y, b.x, b.y};
  }
}

template <WeightKind kKind, int kRows>
__device__ void multiply_chunk(const TileStage<kKind, kRows>& stage, float (&lanes)[kRows][4]) {
  const int o = static_cast<int>(threadIdx.x) / kThreadsPerOut, j = static_cast<int>(threadIdx.x) % kThreadsPerOut;
  const uint8_t* weights = stage.weights[o];
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) {
    float4 w = load_weights<kKind>(weights, step, j);
    if constexpr (kKind != WeightKind::kBf16) {
      const float scale = e8m0_to_float(stage.scales[o][step / 2]);
      w.x *= scale, w.y *= scale, w.z *= scale, w.w *= scale;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 x = *reinterpret_cast<const float4*>(&stage.x[r][16 * step + 4 * j]);
      lanes[r][0] = __fmaf_rn(x.x, w.x, lanes[r][0]);
      lanes[r][1] = __fmaf_rn(x.y, w.y, lanes[r][1]);
      lanes[r][2] = __fmaf_rn(x.z, w.z, lanes[r][2]);
      lanes[r][3] = __fmaf_rn(x.w, w.w, lanes[r][3]);
    }
  }
}

// Sixteen lanes on four neighbouring threads, folded 16 -> 8 -> 4 -> 2 -> 1; the first of the four has the sum.
__device__ inline float fold_quarter(float (&lanes)[4]) {
#pragma unroll
  for (int away = 2; away > 0; away /= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) lanes[i] += __shfl_down_sync(0xFFFFFFFFu, lanes[i], away, kThreadsPerOut);
  lanes[0] += lanes[2];
  lanes[1] += lanes[3];
  return lanes[0] + lanes[1];
}

// sums[r]: output out_begin + threadIdx.x / 4 of row r, on the first of each four threads. The whole block calls; stages
// is shared memory for kStages stages.
template <WeightKind kKind, int kRows>
__device__ void multiply_tile(TileStage<kKind, kRows>* stages, const DeviceMatrix& m, int64_t out_begin,
                              const TileRows& rows, float (&sums)[kRows]) {
  const int64_t chunks = padded_columns(m.in) / kChunk;
  float lanes[kRows][4] = {};
  __syncthreads();  // stages may still be read by a tile before
  for (int64_t c = 0; c < kStages - 1; ++c) {
    if (c < chunks) stage_chunk(stages[c], m, out_begin, c, rows);
    __pipeline_commit();
  }
  for (int64_t c = 0; c < chunks; ++c) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    if (const int64_t next = c + kStages - 1; next < chunks)
      stage_chunk(stages[next % kStages], m, out_begin, next, rows);
    __pipeline_commit();
    multiply_chunk(stages[c % kStages], lanes);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = fold_quarter(lanes[r]);
}

}  // namespace deepinfer
