// SPDX-License-Identifier: MIT
#include "sampler/noise.h"

#include <bit>

namespace deepinfer {
float gumbel_of(uint32_t bits) { return -noise_log(-noise_log(uniform_open(bits))); }

// x = 2^e m with m in [sqrt(1/2), sqrt 2); log m by the degree-9 polynomial of Cephes logf; e log 2 added in two parts.
float noise_log(float x) {
  constexpr float kSqrtHalf = 0.70710678f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kPoly[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                             -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                             2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  int32_t exponent = static_cast<int32_t>(bits >> 23) - 126;
  float m = std::bit_cast<float>((bits & 0x007FFFFFu) | 0x3F000000u);  // in [1/2, 1)
  if (m < kSqrtHalf) {
    --exponent;
    m = m + m;
  }
  const float f = m - 1.f, square = f * f, e = static_cast<float>(exponent);
  float y = kPoly[0];
  for (int i = 1; i < 9; ++i) y = y * f + kPoly[i];
  y = y * f * square;
  y = y + e * kLn2Low;
  y = y - 0.5f * square;
  return (f + y) + e * kLn2High;
}

std::array<float, 4> gumbel_block(const NoiseKey& key, uint32_t block) {
  const PhiloxBlock bits = noise_bits(key, block);
  return {gumbel_of(bits[0]), gumbel_of(bits[1]), gumbel_of(bits[2]), gumbel_of(bits[3])};
}

float gumbel(const NoiseKey& key, TokenId id) {
  const uint32_t v = static_cast<uint32_t>(id);
  return gumbel_of(noise_bits(key, v / 4)[v % 4]);
}

float uniform(const NoiseKey& key) { return uniform_open(noise_bits(key, 0)[0]); }

}  // namespace deepinfer
