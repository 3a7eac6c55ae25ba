// SPDX-License-Identifier: MIT
#include "sampler/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "base/token_masks.h"

namespace deepinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Samples rows of logits of one vocabulary.
struct Bench {
  explicit Bench(int64_t vocab, int num_threads = 1) : sampler(vocab), pool(num_threads), vocab_size(vocab) {}
  std::vector<SampledToken> run(const std::vector<float>& logits, std::span<const SampleRow> rows) {
    std::vector<SampledToken> out(rows.size());
    sampler.sample({logits.data(), {static_cast<int64_t>(rows.size()), vocab_size}}, rows, pool, out);
    return out;
  }
  SampledToken run_one(const std::vector<float>& logits, const SampleRow& row) { return run(logits, {&row, 1})[0]; }
  Sampler sampler;
  ThreadPool pool;
  int64_t vocab_size;
};

std::vector<float> random_logits(Rng& rng, int64_t size, float scale) {
  std::vector<float> row(static_cast<size_t>(size));
  for (float& v : row) v = (rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 2 * scale;
  return row;
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheLargest) {
  SamplingParams p;
  p.temperature = 0;
  Bench bench(6);
  EXPECT_EQ(bench.run_one({1, 5, 2, 5, 5, 0}, {.params = &p}).id, 1);
}

TEST(Sampler, ReportsNonFiniteRowsAloneAndByRow) {
  SamplingParams p;
  Bench bench(5);
  std::vector<float> logits(4 * 5, 1.f);
  logits[5 + 2] = std::numeric_limits<float>::quiet_NaN();
  logits[15 + 4] = -kInfinity;
  std::vector<SampleRow> rows(4, SampleRow{.params = &p});
  const auto out = bench.run(logits, rows);
  EXPECT_EQ(out[0].error, SampleError::kNone);
  EXPECT_EQ(out[1].error, SampleError::kNotFinite);
  EXPECT_EQ(out[2].error, SampleError::kNone);
  EXPECT_EQ(out[3].error, SampleError::kNotFinite);
}

TEST(Sampler, MaskAllowsOnlyItsTokens) {
  SamplingParams p;
  p.temperature = 5;
  Bench bench(70);
  Rng rng(1);
  const std::vector<float> logits = random_logits(rng, 70, 1);
  TokenMasks masks(1, 70);
  for (const TokenId id : {3, 40, 69}) allow(masks.row(0), id);
  int seen[70] = {};
  for (int64_t position = 0; position < 300; ++position)
    ++seen[bench.run_one(logits, {.params = &p, .output_position = position, .mask = masks.row(0)}).id];
  EXPECT_EQ(seen[3] + seen[40] + seen[69], 300);
  EXPECT_TRUE(seen[3] > 20 && seen[40] > 20 && seen[69] > 20);
  TokenMasks none(1, 70);
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .mask = none.row(0)}).error, SampleError::kNothingAllowed);
}

TEST(Sampler, PenaltiesFollowTheirFormulas) {
  SamplingParams p;
  p.temperature = 0;
  p.top_logprobs = 4;
  p.logprob_source = LogprobSource::kProcessed;
  p.repetition_penalty = 2;
  p.frequency_penalty = 0.25f;
  p.presence_penalty = 0.5f;
  p.logit_bias = {{3, -1.f}};
  TokenHistory history;
  history.append_prompt(std::vector<TokenId>{0});
  history.append_output(1);
  history.append_output(1);
  const std::vector<TokenId> drafted = {2, 1};
  Bench bench(4);
  const SampledToken out =
      bench.run_one({2, 4, -1, 3}, {.params = &p, .history = &history, .drafted = drafted, .output_position = 4});
  // 0: in the prompt: 2/2. 1: output three times: 4/2 - 3 * 0.25 - 0.5. 2: drafted once: -1 * 2 - 0.25 - 0.5. 3: 3 - 1.
  const float want[4] = {1.f, 0.75f, -2.75f, 2.f};
  double sum = 0;
  for (const float w : want) sum += std::exp(double{w});
  ASSERT_EQ(out.num_top_logprobs, 4);
  EXPECT_EQ(out.id, 3);
  for (const LikelyToken& top : out.top_logprobs)
    if (&top < out.top_logprobs.data() + 4) {
      EXPECT_NEAR(top.logprob, double{want[top.id]} - std::log(sum), 1e-6) << top.id;
    }
}

TEST(Sampler, BadWordsMaskTheirLastToken) {
  SamplingParams p;
  p.temperature = 0;
  p.bad_words = {{5}, {2, 3, 4}};
  TokenHistory history;
  history.append_prompt(std::vector<TokenId>{1, 2});
  Bench bench(6);
  const std::vector<float> logits = {0, 1, 2, 3, 9, 10};
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .history = &history}).id, 4);
  const std::vector<TokenId> drafted = {3};
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .history = &history, .drafted = drafted, .output_position = 1}).id, 3);
  history.append_output(3);
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .history = &history, .output_position = 1}).id, 3);
  history.append_output(0);
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .history = &history, .output_position = 2}).id, 4);
}

TEST(Sampler, EndsAreMaskedBeforeMinTokensAndWhenIgnored) {
  SamplingParams p;
  p.temperature = 0;
  p.eos_ids = {3};
  p.stop_ids = {2};
  p.min_tokens = 2;
  Bench bench(4);
  const std::vector<float> logits = {0, 1, 2, 3};
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .output_position = 1}).id, 1);
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .output_position = 2}).id, 3);
  p.ignore_eos = true;
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .output_position = 2}).id, 2);
  // A grammar that leaves nothing but the end wins.
  TokenMasks masks(1, 4);
  allow(masks.row(0), 3);
  EXPECT_EQ(bench.run_one(logits, {.params = &p, .output_position = 0, .mask = masks.row(0)}).id, 3);
}

TEST(Sampler, LogprobsBeforeAndAfterTemperature) {
  SamplingParams p;
  p.temperature = 0.5f;
  p.top_k = 1;
  p.top_logprobs = 2;
  Bench bench(4);
  const std::vector<float> logits = {1, 3, 2, 2};
  const double sum = std::exp(1.0) + std::exp(3.0) + 2 * std::exp(2.0);
  SampledToken out = bench.run_one(logits, {.params = &p});
  EXPECT_EQ(out.id, 1);
  EXPECT_NEAR(out.logprob, 3 - std::log(sum), 1e-6);
  EXPECT_EQ(out.num_top_logprobs, 2);
  EXPECT_EQ(out.top_logprobs[1].id, 2);  // ties by id
  EXPECT_NEAR(out.top_logprobs[1].logprob, 2 - std::log(sum), 1e-6);
  p.logprob_source = LogprobSource::kProcessed;
  const double scaled = std::exp(2.0) + std::exp(6.0) + 2 * std::exp(4.0);
  out = bench.run_one(logits, {.params = &p});
  EXPECT_NEAR(out.logprob, 6 - std::log(scaled), 1e-6);
  const SampledToken prompt = model_logprobs(logits, 0, 1);
  EXPECT_NEAR(prompt.logprob, 1 - std::log(sum), 1e-6);
  EXPECT_EQ(prompt.top_logprobs[0].id, 1);
}

// The whole of decision 6: other rows, their order and threads change nothing.
TEST(Sampler, ARowIsAFunctionOfItsOwnInputs) {
  constexpr int64_t kVocab = 1003;
  Rng rng(17);
  std::vector<SamplingParams> params(24);
  std::vector<float> logits;
  std::vector<SampleRow> rows;
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].seed = i;
    params[i].temperature = i % 4 == 0 ? 0.f : 0.3f * static_cast<float>(i % 7 + 1);
    params[i].top_k = i % 3 == 0 ? 40 : 0;
    params[i].top_p = i % 5 == 0 ? 0.9f : 1.f;
    params[i].top_logprobs = 3;
    const std::vector<float> row = random_logits(rng, kVocab, 3);
    logits.insert(logits.end(), row.begin(), row.end());
    rows.push_back({.params = &params[i], .output_position = static_cast<int64_t>(3 * i)});
  }
  Bench one(kVocab), three(kVocab, 3);
  const auto together = one.run(logits, rows), threaded = three.run(logits, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<float> alone(logits.begin() + static_cast<ptrdiff_t>(i * kVocab),
                                   logits.begin() + static_cast<ptrdiff_t>((i + 1) * kVocab));
    const SampledToken single = one.run_one(alone, rows[i]);
    for (const SampledToken& other : {together[i], threaded[i]}) {
      EXPECT_EQ(single.id, other.id);
      EXPECT_EQ(single.logprob, other.logprob);
      EXPECT_EQ(single.top_logprobs, other.top_logprobs);
    }
  }
}

// The bound that spares most of the noise must never change the winner.
TEST(Sampler, SkippingNoiseGivesTheWinnerOfAllTheNoise) {
  constexpr int64_t kVocab = 517;
  Rng rng(23);
  Bench bench(kVocab);
  for (int round = 0; round < 400; ++round) {
    SamplingParams p, everything;
    p.seed = everything.seed = static_cast<uint64_t>(round);
    p.temperature = everything.temperature = round % 2 == 0 ? 1.f : 0.1f + rng.uniform() * 3;
    everything.top_k = kVocab;  // picks among a list, without the bound
    const std::vector<float> logits = random_logits(rng, kVocab, 0.5f * static_cast<float>(round % 20));
    EXPECT_EQ(bench.run_one(logits, {.params = &p, .output_position = round}).id,
              bench.run_one(logits, {.params = &everything, .output_position = round}).id);
  }
}

TEST(Sampler, ReadsOnlyTheVocabularyOfPaddedRows) {
  SamplingParams p;
  p.temperature = 0;
  Sampler sampler(3);
  ThreadPool pool(1);
  const std::vector<float> logits = {1, 2, 0, kInfinity, 0, 1, 2, kInfinity};
  const std::vector<SampleRow> rows(2, SampleRow{.params = &p});
  std::vector<SampledToken> out(2);
  sampler.sample({logits.data(), {2, 3}, {4, 1}}, rows, pool, out);
  EXPECT_EQ(out[0].id, 1);
  EXPECT_EQ(out[1].id, 2);
}

TEST(Sampler, CountsAcceptedDraftsUpToTheFirstDifference) {
  const std::vector<TokenId> drafts = {4, 5, 6};
  EXPECT_EQ(count_accepted(drafts, std::vector<TokenId>{4, 5, 6, 7}), 3);
  EXPECT_EQ(count_accepted(drafts, std::vector<TokenId>{4, 9, 6, 7}), 1);
  EXPECT_EQ(count_accepted(drafts, std::vector<TokenId>{1, 5, 6, 7}), 0);
  EXPECT_EQ(count_accepted({}, std::vector<TokenId>{1}), 0);
}

}  // namespace
}  // namespace deepinfer
