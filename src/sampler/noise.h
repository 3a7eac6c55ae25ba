// SPDX-License-Identifier: MIT
// The noise of sampling: standard Gumbel values as a pure function of (seed, choice, output position, purpose, token
// id), by Philox4x32-10 (serving.md 6.3). Drafts and targets of a position read the same values, so the picked token is
// a function of the distribution, the seed and the position alone: speculation, batching and preemption cannot change
// it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/ids.h"
#include "base/philox.h"

namespace deepinfer {

enum class NoisePurpose : uint32_t {
  kTarget = 0,
  kDraft = 1,
  kAccept = 2,
  kResidual = 3
};  // 1 to 3: rejection sampling only

struct NoiseKey {
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t output_position = 0;
  NoisePurpose purpose = NoisePurpose::kTarget;
};

// Natural logarithm of a positive normal number, relative error below 2^-22. Its own polynomial, in a fixed order of
// single precision operations, so every backend gives the same bits: x = 2^e m with m in [sqrt(1/2), sqrt 2); log m by
// the degree-9 polynomial of Cephes logf; e log 2 added in two parts. constexpr, so that device code may call it.
constexpr float noise_log(float x) {
  constexpr float kSqrtHalf = 0.70710678f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  int32_t exponent = static_cast<int32_t>(bits >> 23) - 126;
  float m = std::bit_cast<float>((bits & 0x007FFFFFu) | 0x3F000000u);  // in [1/2, 1)
  if (m < kSqrtHalf) {
    --exponent;
    m = m + m;
  }
  const float f = m - 1.f, square = f * f, e = static_cast<float>(exponent);
  float y = 7.0376836292e-2f * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  y = y * f * square;
  y = y + e * kLn2Low;
  y = y - 0.5f * square;
  return (f + y) + e * kLn2High;
}

// The generator's words for ids 4 * block .. 4 * block + 3, and the Gumbel value of one word.
constexpr PhiloxBlock noise_bits(const NoiseKey& key, uint32_t block) {
  return philox({static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)},
                {block, key.output_position, static_cast<uint32_t>(key.purpose), key.choice});
}
constexpr float gumbel_of(uint32_t bits) { return -noise_log(-noise_log(uniform_open(bits))); }

// Values of ids 4 * block .. 4 * block + 3. Between -2.82 and kGumbelMax.
std::array<float, 4> gumbel_block(const NoiseKey& key, uint32_t block);
float gumbel(const NoiseKey& key, TokenId id);
inline constexpr float kGumbelMax = 16.7f;  // bound on every value: uniforms have 23 bits

// Uniform in (0, 1) for the accept draws of rejection sampling.
float uniform(const NoiseKey& key);

}  // namespace deepinfer
