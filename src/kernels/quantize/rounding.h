// SPDX-License-Identifier: MIT
// The scale rules of the three row formats (model.md 4.1, 4.3, 4.4), for one group at a time. Scalar and exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/float8.h"

namespace deepinfer {

// The power of two at or above x, as an e8m0 byte: the exponent field, plus one where the mantissa is not zero.
constexpr uint8_t e8m0_at_or_above(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return static_cast<uint8_t>((u >> 23) + ((u & 0x7FFFFFu) != 0));
}

constexpr float kFp8AmaxLeast = 1e-4f, kFp8Inverse = 1.f / 448.f;
constexpr float kFp4AmaxLeast = 6.f * 0x1p-126f, kFp4Inverse = 1.f / 6.f;
constexpr float kFp4Group16AmaxLeast = 6.f * 0x1p-9f;

constexpr uint8_t fp8_block_scale(float amax) {
  return e8m0_at_or_above((amax < kFp8AmaxLeast ? kFp8AmaxLeast : amax) * kFp8Inverse);
}
constexpr uint8_t fp4_group32_scale(float amax) {
  return e8m0_at_or_above((amax < kFp4AmaxLeast ? kFp4AmaxLeast : amax) * kFp4Inverse);
}
constexpr uint8_t fp4_group16_scale(float amax) {
  return float_to_e4m3((amax < kFp4Group16AmaxLeast ? kFp4Group16AmaxLeast : amax) / 6.f);
}

}  // namespace deepinfer
