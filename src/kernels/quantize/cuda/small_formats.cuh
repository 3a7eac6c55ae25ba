// SPDX-License-Identifier: MIT
// The scale rules of quantize/rounding.h on a warp: one column a thread, a group's threads agree on its scale.
#pragma once

#include <cuda_runtime.h>

#include "kernels/quantize/quantize.h"
#include "kernels/quantize/rounding.h"

namespace deepinfer {

// The largest magnitude among `width` (16 or 32) neighbouring threads; all 32 of the warp call.
__device__ inline float group_amax(float value, int width) {
  float amax = fabsf(value);
  for (int half = width / 2; half > 0; half /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, amax, half);
    amax = other > amax ? other : amax;
  }
  return amax;
}

struct Coded {
  uint8_t code, scale;
};

// One column's code and its group's scale. Threads beyond the row pass zero.
__device__ inline Coded encode(RowFormat format, float value) {
  switch (format) {
    case RowFormat::kFp8Block32: {
      const uint8_t scale = fp8_block_scale(group_amax(value, 32));
      return {float_to_e4m3(value / e8m0_to_float(scale)), scale};
    }
    case RowFormat::kFp4Group16: {
      const uint8_t scale = fp4_group16_scale(group_amax(value, 16));
      return {float_to_e2m1(value / e4m3_to_float(scale)), scale};
    }
    case RowFormat::kFp4Group32: {
      const uint8_t scale = fp4_group32_scale(group_amax(value, 32));
      return {float_to_e2m1(value / e8m0_to_float(scale)), scale};
    }
    case RowFormat::kBf16: break;
  }
  return {};
}

__device__ inline float e2m1_value(uint8_t code) {  // 0 .5 1 1.5 2 3 4 6 without a table
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const float magnitude = exponent == 0 ? 0.5f * static_cast<float>(mantissa)
                                        : static_cast<float>((2 + mantissa) << (exponent - 1)) * 0.5f;
  return code & 8 ? -magnitude : magnitude;
}

__device__ inline bf16 decode(RowFormat format, Coded c) {
  if (format == RowFormat::kFp8Block32) return to_bf16(e4m3_to_float(c.code) * e8m0_to_float(c.scale));
  return to_bf16(e2m1_value(c.code) *
                 (format == RowFormat::kFp4Group16 ? e4m3_to_float(c.scale) : e8m0_to_float(c.scale)));
}

// Column i of a packed row of `size` columns.
__device__ inline bf16 unpack_column(RowFormat format, const uint8_t* packed, int64_t size, int64_t i) {
  if (format == RowFormat::kBf16)
    return {static_cast<uint16_t>(packed[2 * i] | packed[2 * i + 1] << 8)};
  if (format == RowFormat::kFp8Block32) return decode(format, {packed[i], packed[size + i / 32]});
  const int64_t group = format == RowFormat::kFp4Group16 ? 16 : 32;
  return decode(format, {static_cast<uint8_t>(packed[i / 2] >> (i % 2 * 4) & 15), packed[size / 2 + i / group]});
}

}  // namespace deepinfer
