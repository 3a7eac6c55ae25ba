// SPDX-License-Identifier: MIT
// Small codes to pairs of bf16 in registers, for tensor cores. Which columns make a pair is what takes the fewest
// instructions: products are sums over columns in any order, so the other operand's columns are put in the same one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace deepinfer {

__device__ inline uint32_t multiply_two(uint32_t pair, uint32_t by) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(by));
  return product;
}
// Bits of `b` where the mask has ones, else of `a`.
__device__ inline uint32_t pick_bits(uint32_t a, uint32_t b, uint32_t mask) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xE2;" : "=r"(bits) : "r"(b), "r"(mask), "r"(a));
  return bits;
}

// Eight e2m1 codes: pair i has columns i and i + 4, whose nibbles are sixteen bits apart. Their bits in a bf16's exponent
// and mantissa are 2^-126 of their value, also where subnormal. There a sign stands nine bits above its magnitude's lowest:
// put there for two pairs at a time (of the upper nibbles around the end of the word), a pair is one shift and one mask.
__device__ inline uint4 unpack_e2m1(uint32_t word, uint32_t factor) {
  constexpr uint32_t kCodes = 0x81C081C0u;
  const uint32_t signs = __funnelshift_l(word, word, 6);
  const uint32_t first = pick_bits(word, signs, 0x22002200u), second = pick_bits(word, signs, 0x00220022u);
  return {multiply_two((first << 6) & kCodes, factor), multiply_two((first << 2) & kCodes, factor),
          multiply_two(__funnelshift_r(second, second, 2) & kCodes, factor),
          multiply_two(__funnelshift_r(second, second, 6) & kCodes, factor)};
}

// Four e4m3 codes, columns (0, 2) and (1, 3): 2^-120 of their value in a bf16.
__device__ inline uint2 unpack_e4m3(uint32_t word, uint32_t factor) {
  return {multiply_two(((word << 8) & 0x80008000u) | ((word << 4) & 0x07F007F0u), factor),
          multiply_two((word & 0x80008000u) | ((word >> 4) & 0x07F007F0u), factor)};
}

// Eight e4m3 codes, columns 0..3 in `low`, in pairs as of e2m1: a column i and i + 4.
__device__ inline uint4 unpack_e4m3(uint32_t low, uint32_t high, uint32_t factor) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t two = __byte_perm(low, high, (4 + i) << 12 | i << 4);
    const uint32_t bits = (two & 0x80008000u) | (two >> 4 & 0x07F007F0u);
    pairs[i] = multiply_two(multiply_two(bits, 0x7B807B80u), factor);
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Eight columns between their order and the permuted one.
__device__ inline uint4 permute_eight(uint4 v) {
  return {__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410),
          __byte_perm(v.y, v.w, 0x7632)};
}
__device__ inline uint4 restore_eight(uint4 v) {
  return {__byte_perm(v.x, v.y, 0x5410), __byte_perm(v.z, v.w, 0x5410), __byte_perm(v.x, v.y, 0x7632),
          __byte_perm(v.z, v.w, 0x7632)};
}

}  // namespace deepinfer
