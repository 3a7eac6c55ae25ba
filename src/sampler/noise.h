// SPDX-License-Identifier: MIT
// The noise of sampling: standard Gumbel values as a pure function of (seed, choice, output position, purpose, token
// id), by Philox4x32-10 (serving.md 6.3). Drafts and targets of a position read the same values, so the picked token is
// a function of the distribution, the seed and the position alone: speculation, batching and preemption cannot change
// it.
#pragma once

#include <array>
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
// single precision operations, so every backend gives the same bits.
float noise_log(float x);

// The generator's words for ids 4 * block .. 4 * block + 3, and the Gumbel value of one word.
inline PhiloxBlock noise_bits(const NoiseKey& key, uint32_t block) {
  return philox({static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)},
                {block, key.output_position, static_cast<uint32_t>(key.purpose), key.choice});
}
float gumbel_of(uint32_t bits);

// Values of ids 4 * block .. 4 * block + 3. Between -2.82 and kGumbelMax.
std::array<float, 4> gumbel_block(const NoiseKey& key, uint32_t block);
float gumbel(const NoiseKey& key, TokenId id);
inline constexpr float kGumbelMax = 16.7f;  // bound on every value: uniforms have 23 bits

// Uniform in (0, 1) for the accept draws of rejection sampling.
float uniform(const NoiseKey& key);

}  // namespace deepinfer
