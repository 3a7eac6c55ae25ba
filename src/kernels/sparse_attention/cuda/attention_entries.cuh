// SPDX-License-Identifier: MIT
// Packed cache rows of 512 columns as panels of bf16 (panel_product.cuh) for the tensor cores. A warp unpacks a row:
// thread l has columns 16 l .. 16 l + 15. Values are kUnpackScale times too small, which leaves one multiplication a
// pair for FP4, and stand permuted inside groups of eight, because a word's nibbles i and i + 4 are unpacked together.
#pragma once

#include "kernels/linear/cuda/panel_product.cuh"
#include "kernels/quantize/cuda/unpack_pairs.cuh"
#include "kernels/sparse_attention/entry_list.h"

namespace deepinfer {

inline constexpr int kTileEntries = 64, kTileColumns = 512, kPanels = kTileColumns / 64;
inline constexpr int kPanelBytes = kTileEntries * kPanelRowBytes, kTileBytes = kPanels * kPanelBytes;
inline constexpr float kUnpackScale = 256.f;  // what is missing in values and in products with them

struct PackedPiece {  // what one thread has of a row
  uint32_t codes[4];  // of FP4 rows the first two
  uint32_t scale;
};

// Straight into the piece's registers, so that nothing waits for a load before its use.
__device__ inline void load_piece(PackedPiece& piece, const uint8_t* row, bool is_fp4, int lane) {
  uint32_t(&codes)[4] = piece.codes;
  if (is_fp4) {
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(codes[0]), "=r"(codes[1]) : "l"(row + 8 * lane));
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(piece.scale) : "l"(row + kTileColumns / 2 + lane));
  } else {
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(codes[0]), "=r"(codes[1]), "=r"(codes[2]), "=r"(codes[3])
                 : "l"(row + 16 * lane));
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(piece.scale) : "l"(row + kTileColumns + lane / 2));
  }
}

// Of the thread, in the tile's first row.
__device__ inline uint32_t panel_place(int lane) {
  return static_cast<uint32_t>(lane / 4 * kPanelBytes + (lane % 4 * 2 + (lane / 4 & 1)) * 16);
}
__device__ inline void store_16(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
// Half of the threads begin with their second piece: no bank conflicts. `at`: of the first piece in the tile.
template <bool kIsFp4>
__device__ void store_piece(uint32_t at, int lane, const PackedPiece& piece) {
  const bool swaps = lane / 4 & 1;
  const uint32_t(&codes)[4] = piece.codes;
  if constexpr (kIsFp4) {
    const uint32_t bits = piece.scale << 4 & 0x7F0u;
    const uint32_t factor = multiply_two(multiply_two(bits | bits << 16, 0x7B807B80u), 0x7A807A80u);  // 2^120, 2^118
    store_16(at, unpack_e2m1(swaps ? codes[1] : codes[0], factor));
    store_16(at ^ 16, unpack_e2m1(swaps ? codes[0] : codes[1], factor));
  } else {
    const uint32_t bits = (piece.scale > 8 ? piece.scale - 8 : 0) << 7, factor = bits | bits << 16;
    store_16(at, unpack_e4m3(swaps ? codes[2] : codes[0], swaps ? codes[3] : codes[1], factor));
    store_16(at ^ 16, unpack_e4m3(swaps ? codes[0] : codes[2], swaps ? codes[1] : codes[3], factor));
  }
}

}  // namespace deepinfer
