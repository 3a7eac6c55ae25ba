// SPDX-License-Identifier: MIT
#include "engram/hash_plan.h"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace deepinfer {
namespace {

__extension__ using uint128 = unsigned __int128;

// NumPy's SeedSequence for one entropy integer (Appendix B).
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t entropy) {
    std::vector<uint32_t> words;
    do {
      words.push_back(static_cast<uint32_t>(entropy));
      entropy >>= 32;
    } while (entropy != 0);
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < words.size() ? words[i] : 0);
    for (size_t from = 0; from < pool_.size(); ++from)
      for (size_t to = 0; to < pool_.size(); ++to)
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
  }

  std::array<uint64_t, 4> generate() const {
    std::array<uint64_t, 4> out{};
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t v = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      v *= constant;
      v ^= v >> 16;
      out[i / 2] |= static_cast<uint64_t>(v) << (i % 2 * 32);
    }
    return out;
  }

 private:
  uint32_t hash(uint32_t v) {
    v ^= constant_;
    constant_ *= 0x931e8875;
    v *= constant_;
    return v ^ v >> 16;
  }
  static uint32_t mix(uint32_t x, uint32_t y) {
    const uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ r >> 16;
  }

  uint32_t constant_ = 0x43b0d7e5;
  std::array<uint32_t, 4> pool_{};
};

class Pcg64 {
 public:
  explicit Pcg64(const std::array<uint64_t, 4>& words) : increment_((uint128{words[2]} << 64 | words[3]) << 1 | 1) {
    step();
    state_ += uint128{words[0]} << 64 | words[1];
    step();
  }

  uint64_t next() {
    step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const unsigned rotation = static_cast<unsigned>(state_ >> 122);
    return folded >> rotation | folded << (-rotation & 63);
  }

  // Uniform on [0, bound), without bias.
  uint64_t below(uint64_t bound) {
    uint128 product = uint128{next()} * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = (0 - bound) % bound;
      while (static_cast<uint64_t>(product) < threshold) product = uint128{next()} * bound;
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  void step() { state_ = state_ * (uint128{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645) + increment_; }

  uint128 state_ = 0;
  uint128 increment_;
};

bool is_prime(int64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2)
    if (n % d == 0) return false;
  return true;
}

constexpr int kPrimesMax = 1024;  // 48 in the released model

std::vector<int64_t> multipliers_of(int layer, int ngram_max, int64_t num_token_classes) {
  // Every product of a class and a multiplier stays below 2^63.
  const int64_t bound = std::max<int64_t>(1, INT64_MAX / num_token_classes / 2);
  std::vector<int64_t> out =
      numpy_integers(uint64_t{10007} * static_cast<uint64_t>(layer), static_cast<uint64_t>(bound), ngram_max);
  for (int64_t& u : out) u = 2 * u + 1;
  return out;
}

}  // namespace

std::vector<int64_t> numpy_integers(uint64_t seed, uint64_t bound, int size) {
  Pcg64 generator(SeedSequence(seed).generate());
  std::vector<int64_t> out(static_cast<size_t>(size));
  for (int64_t& value : out) value = static_cast<int64_t>(generator.below(bound));
  return out;
}

Result<HashPlan> make_hash_plan(const EngramConfig& config) {
  HashPlan plan{config.ngram_max, config.num_heads, {}};
  const int64_t num_primes = static_cast<int64_t>(config.layers.size()) * (config.ngram_max - 1) * config.num_heads;
  if (config.ngram_max < 2 || config.num_heads < 1 || num_primes > kPrimesMax)
    return invalid_argument("Engram: " + std::to_string(config.layers.size()) + " tables of " +
                            std::to_string(config.num_heads) + " heads for n up to " +
                            std::to_string(config.ngram_max) + " need " + std::to_string(num_primes) +
                            " primes, at most " + std::to_string(kPrimesMax) + " expected");
  // A multiplier needs room for more than 32 bits, or NumPy would have used another generator.
  if (config.num_token_classes < 1 || config.num_token_classes > int64_t{1} << 24 || config.prime_start < 1 ||
      config.prime_start > int64_t{1} << 31)
    return invalid_argument("Engram: engram_compressed_vocab_size " + std::to_string(config.num_token_classes) +
                            " or engram_vocab_size " + std::to_string(config.prime_start) + " is out of bounds");
  std::unordered_set<int64_t> taken;  // a prime serves one column of one layer only
  for (const int layer : config.layers) {
    HashLayer out{layer, {}, {}, multipliers_of(layer, config.ngram_max, config.num_token_classes)};
    int64_t offset = 0;
    for (int n = 2; n <= config.ngram_max; ++n) {
      int64_t candidate = config.prime_start - 1;
      for (int head = 0; head < config.num_heads; ++head) {
        do ++candidate;
        while (taken.contains(candidate) || !is_prime(candidate));
        taken.insert(candidate);
        out.primes.push_back(candidate);
        out.offsets.push_back(offset);
        offset += candidate;
      }
    }
    plan.layers.push_back(std::move(out));
  }
  return plan;
}

}  // namespace deepinfer
