// SPDX-License-Identifier: MIT
// exp in fp32 with the same bits on every machine and in every vector width: argument reduction by n ln 2 in two parts,
// the degree-5 polynomial of Cephes expf, scaling by 2^n in two steps; each operation rounded on its own. Error below 2
// ulp; overflow gives infinity, underflow goes through denormals to 0, NaN stays NaN. The vector forms in lanes/cpu
// must follow it operation by operation.
#pragma once

#include <bit>
#include <cstdint>

namespace deepinfer {

inline constexpr float kExpLow = -104.f, kExpHigh = 89.f;
inline constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
inline constexpr float kRoundMagic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer, ties to even
inline constexpr float kExpPoly[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                     4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

inline float exp_in_lanes(float x) {
  x = x < kExpLow ? kExpLow : x;
  x = x > kExpHigh ? kExpHigh : x;
  const float shifted = x * kLog2E + kRoundMagic;
  const int32_t n = static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRoundMagic));
  const float rounded = shifted - kRoundMagic;
  float r = x - rounded * kLn2High;
  r = r - rounded * kLn2Low;
  float y = kExpPoly[0];
  for (int i = 1; i < 6; ++i) y = y * r + kExpPoly[i];
  y = y * (r * r) + r;
  y = y + 1.f;
  const int32_t first = n >> 1, second = n - first;
  y = y * std::bit_cast<float>((first + 127) << 23);
  return y * std::bit_cast<float>((second + 127) << 23);
}

inline float sigmoid_in_lanes(float x) { return 1.f / (1.f + exp_in_lanes(-x)); }
inline float silu_in_lanes(float x) { return x / (1.f + exp_in_lanes(-x)); }

}  // namespace deepinfer
