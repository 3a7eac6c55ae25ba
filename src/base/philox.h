// SPDX-License-Identifier: MIT
// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
// A draw is a pure function of (key, counter), so the same request gives the same noise on any backend, batch or
// schedule.
#pragma once

#include <array>
#include <cstdint>

namespace deepinfer {

__extension__ using Uint128 = unsigned __int128;  // a GNU extension, allowed for 64x64 products
using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox(std::array<uint32_t, 2> key, PhiloxBlock counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Uniform in (0, 1): never 0 and never 1, so logarithms of it are finite.
constexpr float uniform_open(uint32_t bits) { return (static_cast<float>(bits >> 9) + 0.5f) * (1.0f / 8388608.0f); }

// A sequential stream over the counter for tests, data generators and tools.
class Rng {
 public:
  explicit constexpr Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}
  constexpr uint32_t next_u32() {
    if (used_ == 4) {
      block_ = philox({static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)},
                      {static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32),
                       static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)});
      ++counter_;
      used_ = 0;
    }
    return block_[used_++];
  }
  constexpr uint64_t next_u64() {
    const uint64_t low = next_u32();
    return low | (uint64_t{next_u32()} << 32);
  }
  constexpr float uniform() { return uniform_open(next_u32()); }
  // Uniform in [0, bound), without bias for practical bounds.
  constexpr uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<Uint128>(next_u64()) * bound) >> 64);
  }

 private:
  uint64_t seed_, stream_, counter_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

}  // namespace deepinfer
