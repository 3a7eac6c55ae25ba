// SPDX-License-Identifier: MIT
#include "sampler/sampling_params.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace deepinfer {
namespace {

TEST(SamplingParams, DefaultsAreValid) { EXPECT_TRUE(validate({}, 10).ok()); }

TEST(SamplingParams, EveryFieldHasItsBounds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<const char*, std::function<void(SamplingParams&)>> cases[] = {
      {"temperature", [](SamplingParams& p) { p.temperature = -0.1f; }},
      {"temperature", [&](SamplingParams& p) { p.temperature = nan; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 1.01f; }},
      {"min_p", [](SamplingParams& p) { p.min_p = -1; }},
      {"top_k", [](SamplingParams& p) { p.top_k = -1; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0; }},
      {"presence_penalty", [&](SamplingParams& p) { p.presence_penalty = nan; }},
      {"frequency_penalty", [](SamplingParams& p) { p.frequency_penalty = 1e9f; }},
      {"min_tokens", [](SamplingParams& p) { p.min_tokens = -1; }},
      {"top_logprobs", [](SamplingParams& p) { p.top_logprobs = 21; }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{10, 1.f}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{3, 1.f}, {3, 2.f}};
       }},
      {"stop_ids", [](SamplingParams& p) { p.stop_ids = {-1}; }},
      {"eos_ids", [](SamplingParams& p) { p.eos_ids = {10}; }},
      {"bad_words", [](SamplingParams& p) { p.bad_words = {{}}; }},
      {"bad_words",
       [](SamplingParams& p) {
         p.bad_words = {{1, 11}};
       }},
      {"bad_words", [](SamplingParams& p) { p.bad_words = {std::vector<TokenId>(65, 1)}; }},
  };
  for (const auto& [field, spoil] : cases) {
    SamplingParams p;
    spoil(p);
    const Status status = validate(p, 10);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << field;
    EXPECT_NE(status.message().find(field), std::string::npos) << status.message();
  }
}

TEST(SamplingParams, HistoryIsNeededByPenaltiesAndBadPhrases) {
  SamplingParams p;
  EXPECT_FALSE(needs_history(p));
  p.bad_words = {{4}};
  EXPECT_FALSE(needs_history(p));  // a single token needs nothing before it
  p.bad_words = {{4, 5}};
  EXPECT_TRUE(needs_history(p));
  p = {};
  p.frequency_penalty = 0.5f;
  EXPECT_TRUE(needs_history(p));
}

TEST(SamplingParams, EndsAfterMinTokensAndNeverOnIgnoredEos) {
  SamplingParams p;
  p.eos_ids = {1};
  p.stop_ids = {7};
  p.min_tokens = 3;
  EXPECT_FALSE(ends_sequence(p, 1, 2));
  EXPECT_TRUE(ends_sequence(p, 1, 3));
  EXPECT_TRUE(ends_sequence(p, 7, 3));
  EXPECT_FALSE(ends_sequence(p, 2, 3));
  p.ignore_eos = true;
  EXPECT_FALSE(ends_sequence(p, 1, 9));
  EXPECT_TRUE(ends_sequence(p, 7, 9));
}

}  // namespace
}  // namespace deepinfer
