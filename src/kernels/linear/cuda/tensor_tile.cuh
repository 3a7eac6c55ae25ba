// SPDX-License-Identifier: MIT
// Products of activations and packed weights on tensor cores (mma.sync m16n8k16, bf16 in, fp32 sums), for linear and
// experts. Codes times their scales are exact in bf16, so only the order of the sums differs from the reference.
//
// A warp has 16 outputs and all tokens of the tile: a weight is unpacked once per block. kSplit warps share the columns
// of a chunk; their sums are added in order at the end. Columns run through the instruction in one fixed order whatever
// the number of tokens, and the split depends on the matrix alone: a row's result depends on nothing but the row.
//
// Inside 32 columns, thread c of four holds columns 8c..8c+7 of both operands: one wide load each. The instruction sums
// over its columns, so any order serves as long as both operands have it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "kernels/linear/cuda/lane_tile.cuh"

namespace deepinfer {

inline constexpr int kTensorColumns = 256;  // activations are padded to a multiple of it

// Place of column i in rows of bf16 that meet FP4 weights: a word's nibbles i and i + 4 are unpacked together.
__host__ __device__ constexpr int fp4_place(int i) { return i / 8 * 8 + (i % 4) * 2 + i % 8 / 4; }

template <WeightKind kKind, int kOutWarps, int kSplit, int kTokens>
struct TensorTile {
  static constexpr int kThreads = 32 * kOutWarps * kSplit, kOut = 16 * kOutWarps, kColumns = 64 * kSplit;
  static constexpr int kTiles = kTokens / 8, kSlots = kTokens <= 8 ? 6 : kTokens <= 64 ? 4 : 3;
  static constexpr int kWeightBytes = static_cast<int>(Packing<kKind>::bytes(kColumns));
  static constexpr int kPadding = kKind == WeightKind::kBf16 ? 64 : kKind == WeightKind::kFp8 ? 32 : 16;
  static constexpr int kBlocks = kColumns / 32;  // scale blocks of a chunk
  struct Stage {
    alignas(16) uint8_t weights[kOut][kWeightBytes + kPadding];  // padded: no bank conflicts
    alignas(16) uint8_t x[kTokens][2 * kColumns + 64];
    uint8_t scales[kOut][kBlocks];
  };
  static constexpr int64_t kSharedBytes = kSlots * static_cast<int64_t>(sizeof(Stage));
  static_assert(kSplit == 1 || (kSplit - 1) * kOut * kTokens * 4 <= kSharedBytes);
  using Sums = float[kTiles][4];
};

// Activations of a tile: bf16 rows of a multiple of kTensorColumns, zero beyond `in`.
struct TensorRows {
  const bf16* x;
  int64_t stride;
  const int32_t* list;
  int64_t first;
  int num_rows;

  __device__ const bf16* row(int r) const { return x + (list ? list[first + r] : first + r) * stride; }
};

template <WeightKind kKind, typename Tile>
__device__ void stage_tensor_chunk(typename Tile::Stage& stage, const DeviceMatrix& m, int64_t out_begin, int64_t chunk,
                                   const TensorRows& rows) {
  using P = Packing<kKind>;
  const int64_t row_bytes = P::bytes(m.in), begin = chunk * Tile::kWeightBytes;
  const bool is_aligned = row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(m.codes) % 16 == 0;
  constexpr int kPieces = Tile::kWeightBytes / 16, kXPieces = Tile::kColumns / 8;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kOut * kPieces; i += Tile::kThreads) {
    const int o = i / kPieces, piece = i % kPieces;
    const bool exists = out_begin + o < m.out;
    stage_bytes(&stage.weights[o][16 * piece], m.codes + (exists ? (out_begin + o) * row_bytes : 0),
                begin + 16 * piece, exists ? row_bytes : 0, is_aligned);
  }
  for (int i = static_cast<int>(threadIdx.x); i < rows.num_rows * kXPieces; i += Tile::kThreads) {
    const int r = i / kXPieces, piece = i % kXPieces;
    __pipeline_memcpy_async(&stage.x[r][16 * piece], rows.row(r) + chunk * Tile::kColumns + 8 * piece, 16);
  }
  if constexpr (kKind == WeightKind::kBf16) return;
  const int64_t columns = (m.in + 31) / 32;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kOut * Tile::kBlocks; i += Tile::kThreads) {
    const int o = i / Tile::kBlocks, block = i % Tile::kBlocks;
    const int64_t row = out_begin + o, column = chunk * Tile::kBlocks + block;
    const int64_t scale_row = kKind == WeightKind::kFp8 ? row / 32 : row;
    stage.scales[o][block] = row < m.out && column < columns ? m.scales[scale_row * columns + column] : 127;
  }
}

__device__ inline uint32_t multiply_pair(uint32_t pair, uint32_t by) {
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), *reinterpret_cast<const __nv_bfloat162*>(&by));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// A scale 2^(code - 127) twice in bf16.
__device__ inline uint32_t scale_pair(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x0040u : static_cast<uint32_t>(code) << 7;
  return bits | bits << 16;
}

// The eight weights of a thread in one row's 32 columns, as bf16 pairs. A code's bits in a bf16's exponent and mantissa
// are its value times a fixed power of two, also where they are subnormal.
template <WeightKind kKind>
__device__ void unpack_eight(const uint8_t* row, int c, uint8_t scale_code, uint32_t (&pairs)[4]) {
  if constexpr (kKind == WeightKind::kBf16) {
    const uint4 eight = *reinterpret_cast<const uint4*>(row + 16 * c);
    pairs[0] = eight.x, pairs[1] = eight.y, pairs[2] = eight.z, pairs[3] = eight.w;
  } else if constexpr (kKind == WeightKind::kFp8) {
    const uint2 eight = *reinterpret_cast<const uint2*>(row + 8 * c);
    const uint32_t scale = scale_pair(scale_code);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = __byte_perm(i < 2 ? eight.x : eight.y, 0, i % 2 == 0 ? 0x1404 : 0x3424);
      const uint32_t bits = (two & 0x80008000u) | (two >> 4 & 0x07F007F0u);
      pairs[i] = multiply_pair(multiply_pair(bits, 0x7B807B80u), scale);  // 2^120
    }
  } else {
    const uint32_t eight = *reinterpret_cast<const uint32_t*>(row + 4 * c), scale = scale_pair(scale_code);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = eight >> (4 * i);  // nibbles i and i + 4: fp4_place
      const uint32_t bits = (two << 12 & 0x80008000u) | (two << 6 & 0x01C001C0u);
      pairs[i] = multiply_pair(multiply_pair(bits, 0x7E807E80u), scale);  // 2^126
    }
  }
}

__device__ inline void multiply_16x8x16(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <WeightKind kKind, typename Tile>
__device__ void multiply_tensor_chunk(const typename Tile::Stage& stage, int num_rows, typename Tile::Sums& sums) {
  constexpr int kOutWarps = Tile::kOut / 16;
  const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4,
            c = static_cast<int>(threadIdx.x) % 4;
  const int out = warp % kOutWarps * 16 + g, slice = warp / kOutWarps;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int block = 2 * slice + half;  // of 32 columns
    const int bytes = block * static_cast<int>(Packing<kKind>::bytes(32));
    uint32_t low[4], high[4];  // rows g and g + 8
    unpack_eight<kKind>(stage.weights[out] + bytes, c, stage.scales[out][block], low);
    unpack_eight<kKind>(stage.weights[out + 8] + bytes, c, stage.scales[out + 8][block], high);
    const uint32_t first[4] = {low[0], high[0], low[1], high[1]}, second[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
    for (int tile = 0; tile < Tile::kTiles; ++tile) {
      if (8 * tile >= num_rows) break;
      const uint4 x = *reinterpret_cast<const uint4*>(&stage.x[8 * tile + g][64 * block + 16 * c]);
      multiply_16x8x16(sums[tile], first, x.x, x.y);
      multiply_16x8x16(sums[tile], second, x.z, x.w);
    }
  }
}

// Adds the slices' sums, in order, on the warps of the first. The whole block calls.
template <typename Tile>
__device__ void add_slices(float* shared, typename Tile::Sums& sums) {
  constexpr int kOutWarps = Tile::kOut / 16, kSplit = Tile::kThreads / 32 / kOutWarps;
  if constexpr (kSplit == 1) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int slice = warp / kOutWarps, out_warp = warp % kOutWarps;
  constexpr int kPerWarp = Tile::kTiles * 4 * 32;
  __syncthreads();
  float* mine = shared + ((slice - 1) * kOutWarps + out_warp) * kPerWarp + lane;
  if (slice > 0)
    for (int i = 0; i < Tile::kTiles * 4; ++i) mine[32 * i] = sums[i / 4][i % 4];
  __syncthreads();
  if (slice == 0)
    for (int s = 1; s < kSplit; ++s)
#pragma unroll
      for (int i = 0; i < Tile::kTiles * 4; ++i)
        sums[i / 4][i % 4] += shared[((s - 1) * kOutWarps + out_warp) * kPerWarp + lane + 32 * i];
}

// Of the warps of the first slice: sums[tile][0..3] are outputs (g, g, g+8, g+8) of tokens 8 tile + (2c, 2c+1, 2c, 2c+1).
template <WeightKind kKind, typename Tile>
__device__ void multiply_tensor_tile(uint8_t* shared, const DeviceMatrix& m, int64_t out_begin, const TensorRows& rows,
                                     typename Tile::Sums& sums) {
  auto* stages = reinterpret_cast<typename Tile::Stage*>(shared);
  const int64_t chunks = (m.in + Tile::kColumns - 1) / Tile::kColumns;
#pragma unroll
  for (int tile = 0; tile < Tile::kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[tile][i] = 0;
  __syncthreads();  // stages may still be read by a tile before
  for (int64_t n = 0; n < Tile::kSlots - 1; ++n) {
    if (n < chunks) stage_tensor_chunk<kKind, Tile>(stages[n], m, out_begin, n, rows);
    __pipeline_commit();
  }
  for (int64_t n = 0; n < chunks; ++n) {
    __pipeline_wait_prior(Tile::kSlots - 2);
    __syncthreads();
    if (const int64_t next = n + Tile::kSlots - 1; next < chunks)
      stage_tensor_chunk<kKind, Tile>(stages[next % Tile::kSlots], m, out_begin, next, rows);
    __pipeline_commit();
    multiply_tensor_chunk<kKind, Tile>(stages[n % Tile::kSlots], rows.num_rows, sums);
  }
  add_slices<Tile>(reinterpret_cast<float*>(shared), sums);
}

// Calls emit(output of the tile, token of the tile, value) on the threads that have the sums.
template <typename Tile, typename Emit>
__device__ void for_each_sum(const typename Tile::Sums& sums, int num_rows, const Emit& emit) {
  constexpr int kOutWarps = Tile::kOut / 16;
  const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4,
            c = static_cast<int>(threadIdx.x) % 4;
  if (warp >= kOutWarps) return;
#pragma unroll
  for (int tile = 0; tile < Tile::kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 8 * tile + 2 * c + i % 2;
      if (token < num_rows) emit(16 * warp + g + i / 2 * 8, token, sums[tile][i]);
    }
}

}  // namespace deepinfer
