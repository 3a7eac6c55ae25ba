// SPDX-License-Identifier: MIT
// exp in fp32 with the same bits on every machine and in every vector width: argument reduction by n ln 2 in two parts,
// the degree-5 polynomial of Cephes expf, scaling by 2^n in two steps; each operation rounded on its own. Error below 2
// ulp; overflow gives infinity, underflow goes through denormals to 0, NaN stays NaN. The vector forms in lanes/cpu
// must follow it operation by operation. constexpr, so that device code may call it.
#pragma once

#include <bit>
#include <cstdint>

namespace deepinfer {

inline constexpr float kExpLow = -104.f, kExpHigh = 89.f;
inline constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
inline constexpr float kRoundMagic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer, ties to even
// One by one, because device code may use a host constant's value but not an element of a host array.
inline constexpr float kExpPoly0 = 1.9875691500e-4f, kExpPoly1 = 1.3981999507e-3f, kExpPoly2 = 8.3334519073e-3f,
                       kExpPoly3 = 4.1665795894e-2f, kExpPoly4 = 1.6666665459e-1f, kExpPoly5 = 5.0000001201e-1f;
inline constexpr float kExpPoly[] = {kExpPoly0, kExpPoly1, kExpPoly2, kExpPoly3, kExpPoly4, kExpPoly5};

constexpr float exp_in_lanes(float x) {
  x = x < kExpLow ? kExpLow : x;
  x = x > kExpHigh ? kExpHigh : x;
  const float shifted = x * kLog2E + kRoundMagic;
  const int32_t n = static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRoundMagic));
  const float rounded = shifted - kRoundMagic;
  float r = x - rounded * kLn2High;
  r = r - rounded * kLn2Low;
  float y = kExpPoly0 * r + kExpPoly1;
  y = y * r + kExpPoly2;
  y = y * r + kExpPoly3;
  y = y * r + kExpPoly4;
  y = y * r + kExpPoly5;
  y = y * (r * r) + r;
  y = y + 1.f;
  const int32_t first = n >> 1, second = n - first;
  y = y * std::bit_cast<float>((first + 127) << 23);
  return y * std::bit_cast<float>((second + 127) << 23);
}

constexpr float sigmoid_in_lanes(float x) { return 1.f / (1.f + exp_in_lanes(-x)); }
constexpr float silu_in_lanes(float x) { return x / (1.f + exp_in_lanes(-x)); }

}  // namespace deepinfer
