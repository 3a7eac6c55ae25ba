// SPDX-License-Identifier: MIT
// Small codes to pairs of bf16 in registers, eight at a time, for tensor cores. Pair i of a result has columns i and
// i + 4: a word's nibbles i and i + 4 are unpacked together, and products are sums over columns in any order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace deepinfer {

__device__ inline uint32_t multiply_two(uint32_t pair, uint32_t by) {
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), *reinterpret_cast<const __nv_bfloat162*>(&by));
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Eight e2m1 codes. Their bits in a bf16's exponent and mantissa are 2^-126 of their value, also where subnormal.
__device__ inline uint4 unpack_e2m1(uint32_t word, uint32_t factor) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t sign = i == 3 ? word : word << (12 - 4 * i);
    const uint32_t magnitude = i < 2 ? word << (6 - 4 * i) : word >> (4 * i - 6);
    pairs[i] = multiply_two((sign & 0x80008000u) | (magnitude & 0x01C001C0u), factor);
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Eight e4m3 codes, columns 0..3 in `low`: 2^-120 of their value in a bf16.
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
