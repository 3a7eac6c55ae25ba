// SPDX-License-Identifier: MIT
#include "sampler/noise.h"

namespace deepinfer {

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
