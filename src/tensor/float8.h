// SPDX-License-Identifier: MIT
// The small number formats of the checkpoint and the caches.
//   e4m3 (fn): 1 sign, 4 exponent (bias 7), 3 mantissa; no infinity; 0x7F and 0xFF are NaN; largest 448.
//   e8m0:      a scale 2^(byte - 127); 255 is NaN.
//   e2m1:      four bits, values 0 .5 1 1.5 2 3 4 6 and a sign; two per byte, the even element in the low nibble.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace deepinfer {

constexpr float e4m3_to_float(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  float magnitude = 0;
  if ((code & 0x7F) == 0x7F) magnitude = std::numeric_limits<float>::quiet_NaN();
  else if (exponent == 0) magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  else
    magnitude =
        std::bit_cast<float>(static_cast<uint32_t>(exponent - 7 + 127) << 23 | static_cast<uint32_t>(mantissa) << 20);
  return code & 0x80 ? -magnitude : magnitude;
}

// Round to nearest, ties to even, saturating at 448. NaN gives 0x7F.
constexpr uint8_t float_to_e4m3(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint8_t sign = static_cast<uint8_t>((u >> 24) & 0x80);
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7F);
  if (magnitude >= 0x43E00000u) return static_cast<uint8_t>(sign | 0x7E);  // >= 448
  if (magnitude <
      0x3C800000u) {  // below 2^-6: subnormal, steps of 2^-9; adding 2^14 aligns the sum's last bit with 2^-9
    const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(aligned) & 0xFFu));
  }
  const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  const uint32_t code = (rounded >> 20) - ((127u - 7u) << 3);
  return static_cast<uint8_t>(sign | (code > 0x7E ? 0x7E : code));
}

constexpr float e8m0_to_float(uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return code == 0 ? 0x1p-127f : std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

inline constexpr float kE2m1Values[16] = {0.f,  .5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                          -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

constexpr float e2m1_to_float(uint8_t nibble) { return kE2m1Values[nibble & 15]; }

// Round to nearest, ties to the even code, saturating at 6. The sign of zero is kept.
constexpr uint8_t float_to_e2m1(float x) {
  const uint8_t sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(x) >> 28 & 8);
  const float a = x < 0 ? -x : x;
  uint8_t code = 7;
  if (a <= 0.25f) code = 0;
  else if (a < 0.75f) code = 1;
  else if (a <= 1.25f) code = 2;
  else if (a < 1.75f) code = 3;
  else if (a <= 2.5f) code = 4;
  else if (a < 3.5f) code = 5;
  else if (a <= 5.0f) code = 6;
  return static_cast<uint8_t>(sign | code);
}

}  // namespace deepinfer
