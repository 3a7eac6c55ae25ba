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

// Of the thread, in the tile's first row.
__device__ inline uint32_t panel_place(int lane) {
  return static_cast<uint32_t>(lane / 4 * kPanelBytes + (lane % 4 * 2 + (lane / 4 & 1)) * 16);
}
__device__ inline void store_16(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
// unpack_e2m1 with fewer shifts: a nibble times 2^12 + 2^6 has its sign and its magnitude where a bf16 has them.
__device__ inline uint32_t spread_nibbles(uint32_t pair, uint32_t by) { return pair * by & 0x81C081C0u; }
__device__ inline uint4 unpack_nibbles(uint32_t word, uint32_t factor) {
  const uint32_t high = word >> 8;
  return {multiply_two(spread_nibbles(word & 0x000F000Fu, 0x1040u), factor),
          multiply_two(spread_nibbles(word & 0x00F000F0u, 0x104u), factor),
          multiply_two(spread_nibbles(high & 0x000F000Fu, 0x1040u), factor),
          multiply_two(spread_nibbles(high & 0x00F000F0u, 0x104u), factor)};
}
// From a row's scale code, two times.
template <bool kIsFp4>
__device__ uint32_t unpack_factor(uint32_t scale) {
  if constexpr (kIsFp4) {
    const uint32_t bits = scale << 4 & 0x7F0u;
    return multiply_two(multiply_two(bits | bits << 16, 0x7B807B80u), 0x7A807A80u);  // 2^120, 2^118
  } else {
    const uint32_t bits = (scale > 8 ? scale - 8 : 0) << 7;
    return bits | bits << 16;
  }
}

}  // namespace deepinfer
