// SPDX-License-Identifier: MIT
// Activations as warpgroups read them: bf16 in panels of 64 columns. Panel n of a matrix of `groups` groups of eight
// tokens begins at n * groups * 1024 bytes; a group is eight rows of 128 bytes whose 16-byte units are swizzled by the
// row, so that a tile of any number of groups is one run of bytes and lies in shared memory as wgmma wants it.
//
// Columns are permuted inside 128, the same for the weights in registers: a thread then reads its codes 16 bytes at a
// time. Sums run over all columns, so any order serves as long as both operands have it.
#pragma once

#include <cstdint>

#include "kernels/linear/cuda/lane_tile.cuh"

namespace deepinfer {

inline constexpr int kPanelColumns = 64, kGroupTokens = 8, kGroupBytes = kGroupTokens * kPanelColumns * 2;
inline constexpr int kChunkColumns = 128;  // two panels

// Place, among 128, of column `i` of 128. Of an e4m3 row, thread c of four has columns 64 h + 16 c + (0..15), of an e2m1
// row 32 c + (0..31), of a bf16 row 32 q + 8 c + (0..7): sixteen bytes. The k-th product takes four columns of each
// thread: places 16 k + 2 c + (0, 1, 8, 9), in the pairs that unpack_pairs.cuh makes.
template <WeightKind kKind>
__host__ __device__ constexpr int panel_place(int i) {
  if constexpr (kKind == WeightKind::kFp4) {
    const int c = i / 32, word = i % 32 / 8, pair = i % 4, high = i % 8 / 4;
    return 16 * (2 * word + pair / 2) + 2 * c + 8 * (pair % 2) + high;
  } else {
    constexpr bool kIsFp8 = kKind == WeightKind::kFp8;
    constexpr int kEach = kIsFp8 ? 16 : 8, kSpan = 4 * kEach;
    const int span = i / kSpan, c = i % kSpan / kEach, k = i % kEach / 4, r = i % 4;
    return kSpan * span + 16 * k + 2 * c + (kIsFp8 ? 8 * (r % 2) + r / 2 : 8 * (r / 2) + r % 2);
  }
}
// Of eight columns, the lower one of pair i of four.
template <WeightKind kKind>
__host__ __device__ constexpr int first_of_pair(int i) {
  return kKind == WeightKind::kFp4 ? i : kKind == WeightKind::kFp8 ? i / 2 * 4 + i % 2 : 2 * i;
}

// Byte of a place (0..63) of a panel's row `row` (any token), from the panel's begin.
__host__ __device__ constexpr int64_t panel_byte(int64_t row, int place) {
  return row * 128 + ((place / 8) ^ static_cast<int>(row % 8)) * 16 + place % 8 * 2;
}

// wgmma's view of a tile's panel in shared memory, k products of 16 columns in.
__host__ __device__ constexpr uint64_t panel_descriptor(uint32_t address, int k) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroupStride = uint64_t{kGroupBytes >> 4} << 32;
  return kSwizzle128 | kGroupStride | uint64_t{1} << 16 | ((address + 32 * k) & 0x3FFFF) >> 4;
}

}  // namespace deepinfer
