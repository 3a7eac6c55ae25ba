// SPDX-License-Identifier: MIT
// Warpgroup products with both operands in shared memory (PTX: wgmma.mma_async), tiles of bf16 in rows of 128 bytes
// whose 16-byte pieces are swizzled: piece i of row r stands at place i ^ (r mod 8). A tile of more than 64 columns is
// a run of such panels. d as in warpgroup_product.cuh, added to; A is 64 rows.
#pragma once

#include "kernels/linear/cuda/bulk_copy.cuh"
#include "kernels/linear/cuda/warpgroup_product.cuh"

namespace deepinfer {

inline constexpr int kPanelRowBytes = 128;

// Byte of a 16-byte piece in a panel.
__device__ constexpr int panel_offset(int row, int piece) { return row * kPanelRowBytes + ((piece ^ (row & 7)) << 4); }

// Both kinds of descriptor: `next` bytes between panels (only where columns are the outputs), 1024 between groups of 8 rows.
__device__ inline uint64_t swizzled_descriptor(uint32_t address, uint32_t next) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroupStride = uint64_t{8 * kPanelRowBytes / 16} << 32;
  return kSwizzle128 | kGroupStride | uint64_t{next / 16} << 16 | (address & 0x3FFFF) >> 4;
}

// Columns of both panels are the inner dimension: 64 rows of B are the outputs.
__device__ inline void wgmma_rows(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" DEEPINFER_NUMBERS_32 "}, %32, %33, 1, 1, 1, 0, 0;"
               : DEEPINFER_SUMS_32(d, 0)
               : "l"(a), "l"(b));
}

// Rows of B are the inner dimension: its columns, in panels of 64, are the outputs.
__device__ inline void wgmma_columns(float (&d)[128], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" DEEPINFER_NUMBERS_128
               "}, %128, %129, 1, 1, 1, 0, 1;"
               : DEEPINFER_SUMS_128(d, 0)
               : "l"(a), "l"(b));
}

}  // namespace deepinfer
