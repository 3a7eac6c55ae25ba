// SPDX-License-Identifier: MIT
#include "sampler/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace deepinfer {
namespace {

TEST(Noise, LogIsTheNaturalLogarithm) {
  for (int i = 1; i < (1 << 24); i += 37) {
    const float x = static_cast<float>(i) * 0x1p-24f;
    const double want = std::log(double{x});
    ASSERT_NEAR(double{noise_log(x)}, want, std::fabs(want) * 0x1p-22 + 1e-30) << x;
  }
  for (float x = 1.f; x < 20.f; x += 0.001f)
    ASSERT_NEAR(double{noise_log(x)}, std::log(double{x}), std::log(double{x}) * 0x1p-22 + 1e-30) << x;
  EXPECT_EQ(noise_log(1.f), 0.f);
}

// Extremes of the 23-bit uniforms.
TEST(Noise, ValuesStayWithinTheirBounds) {
  const auto of = [](uint32_t bits) { return -noise_log(-noise_log(uniform_open(bits))); };
  EXPECT_GT(of(0), -2.83f);
  EXPECT_LT(of(0), -2.8f);
  EXPECT_LT(of(0xFFFFFFFF), kGumbelMax);
  EXPECT_GT(of(0xFFFFFFFF), 16.6f);
}

TEST(Noise, BlocksAndSingleValuesAgree) {
  const NoiseKey key{.seed = 0x123456789ABCDEF0, .choice = 2, .output_position = 77};
  for (uint32_t block = 0; block < 50; ++block) {
    const auto four = gumbel_block(key, block);
    for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(four[i], gumbel(key, static_cast<TokenId>(4 * block + i)));
  }
}

// Seed, choice, position, purpose and token each change the value.
TEST(Noise, EveryPartOfTheKeyCounts) {
  std::set<float> values;
  for (uint64_t seed : {0ull, 1ull, 1ull << 40})
    for (uint32_t choice : {0u, 1u})
      for (uint32_t position : {0u, 1u})
        for (const NoisePurpose purpose :
             {NoisePurpose::kTarget, NoisePurpose::kDraft, NoisePurpose::kAccept, NoisePurpose::kResidual})
          for (TokenId id : {0, 1, 4}) values.insert(gumbel({seed, choice, position, purpose}, id));
  EXPECT_EQ(values.size(), 3u * 2 * 2 * 4 * 3);
}

// Known answer of Philox4x32-10 for a zero key and counter (serving.md 6.3): 6627e8d5 in the first word.
TEST(Noise, ReadsThePublishedGenerator) {
  EXPECT_EQ(uniform({.seed = 0, .choice = 0, .output_position = 0, .purpose = NoisePurpose::kTarget}),
            uniform_open(0x6627e8d5));
}

// Mean of a standard Gumbel variable is Euler's constant, its variance pi^2 / 6.
TEST(Noise, HasTheMomentsOfAGumbelVariable) {
  double sum = 0, squares = 0;
  constexpr int kDraws = 1'000'000;
  for (uint32_t block = 0; block < kDraws / 4; ++block)
    for (const float g : gumbel_block({.seed = 9}, block)) {
      sum += double{g};
      squares += double{g} * double{g};
    }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 0.5772157, 0.006);
  EXPECT_NEAR(squares / kDraws - mean * mean, 1.6449341, 0.02);
}

}  // namespace
}  // namespace deepinfer
