// SPDX-License-Identifier: MIT
// The laws that samplers produce, by chi-square over a million draws at fixed seeds, and the classical rejection
// sampler by exact enumeration. Critical values: chi-square at 1 - 1e-4 for the degrees of freedom at hand.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sampler/cuts.h"
#include "sampler/rejection.h"
#include "sampler/sampler.h"

namespace deepinfer {
namespace {

constexpr int64_t kVocab = 10, kDraws = 1'000'000, kBatch = 1000;
constexpr double kCritical9 = 33.72, kCritical4 = 23.51, kCritical99 = 160.2;
const std::vector<float> kTarget = {2.f, 1.f, 0.f, -1.f, -2.f, -3.f, 0.5f, 1.5f, -0.5f, -4.f};
const std::vector<float> kDraft = {1.2f, 1.6f, 0.4f, -2.f, -1.f, -3.f, 0.1f, 1.9f, 0.3f, -4.f};

Law softmax(const std::vector<float>& logits, float temperature) {
  Law law;
  double sum = 0;
  for (const float l : logits) {
    law.push_back(std::exp(double{l} / double{temperature}));
    sum += law.back();
  }
  for (double& p : law) p /= sum;
  return law;
}

double chi_square(const std::vector<int64_t>& counts, const Law& law, int64_t draws) {
  double total = 0;
  for (size_t v = 0; v < law.size(); ++v) {
    const double expected = law[v] * static_cast<double>(draws);
    if (expected > 0) total += std::pow(static_cast<double>(counts[v]) - expected, 2) / expected;
    else EXPECT_EQ(counts[v], 0);
  }
  return total;
}

// The tokens at output positions 0 .. kDraws-1 of one request whose logits are the same everywhere.
std::vector<TokenId> draw_all(const std::vector<float>& logits, const SamplingParams& params) {
  Sampler sampler(kVocab);
  ThreadPool pool(1);
  std::vector<float> rows_of_logits;
  for (int64_t i = 0; i < kBatch; ++i) rows_of_logits.insert(rows_of_logits.end(), logits.begin(), logits.end());
  std::vector<TokenId> tokens;
  std::vector<SampleRow> rows(kBatch);
  std::vector<SampledToken> out(kBatch);
  for (int64_t begin = 0; begin < kDraws; begin += kBatch) {
    for (int64_t i = 0; i < kBatch; ++i)
      rows[static_cast<size_t>(i)] = {.params = &params, .output_position = begin + i};
    sampler.sample({rows_of_logits.data(), {kBatch, kVocab}}, rows, pool, out);
    for (const SampledToken& token : out) tokens.push_back(token.id);
  }
  return tokens;
}

std::vector<int64_t> count(const std::vector<TokenId>& tokens) {
  std::vector<int64_t> counts(kVocab);
  for (const TokenId id : tokens) ++counts[static_cast<size_t>(id)];
  return counts;
}

TEST(Distribution, PlainSamplingIsSoftmax) {
  for (const float temperature : {1.f, 0.6f, 2.f}) {
    SamplingParams p;
    p.temperature = temperature;
    p.seed = 42;
    EXPECT_LT(chi_square(count(draw_all(kTarget, p)), softmax(kTarget, temperature), kDraws), kCritical9)
        << temperature;
  }
}

TEST(Distribution, CutsRenormalise) {
  SamplingParams p;
  p.seed = 7;
  p.top_k = 5;
  Law law = softmax(kTarget, 1);
  std::vector<Candidate> kept;
  first_candidates(kTarget, 5, kept);
  Law cut(kVocab, 0.0);
  double sum = 0;
  for (const Candidate& c : kept) sum += law[static_cast<size_t>(c.id)];
  for (const Candidate& c : kept) cut[static_cast<size_t>(c.id)] = law[static_cast<size_t>(c.id)] / sum;
  EXPECT_LT(chi_square(count(draw_all(kTarget, p)), cut, kDraws), kCritical4);
}

// Tokens at neighbouring positions are independent: pairs against the product of the laws.
TEST(Distribution, NeighbouringPositionsAreIndependent) {
  SamplingParams p;
  p.seed = 11;
  const std::vector<TokenId> tokens = draw_all(kTarget, p);
  const Law law = softmax(kTarget, 1);
  std::vector<int64_t> pairs(kVocab * kVocab);
  for (size_t i = 0; i + 1 < tokens.size(); i += 2) ++pairs[static_cast<size_t>(tokens[i] * kVocab + tokens[i + 1])];
  Law product;
  for (const double a : law)
    for (const double b : law) product.push_back(a * b);
  EXPECT_LT(chi_square(pairs, product, kDraws / 2), kCritical99);
}

// Speculation with shared noise: drafts from another law at the same positions. The output is the target's pick
// whatever the drafts were, and drafts agree at least as often as the coupling bound (1 - TV) / (1 + TV) promises.
TEST(Distribution, SharedNoiseSpeculationEqualsPlainSamplingTokenByToken) {
  SamplingParams p;
  p.seed = 5;
  const std::vector<TokenId> plain = draw_all(kTarget, p), drafted = draw_all(kDraft, p);
  std::vector<TokenId> speculative;
  int64_t num_accepted = 0, num_drafted = 0;
  for (size_t position = 0; position + 6 < plain.size();) {
    const size_t length = position % 6;  // any schedule of verify lengths
    const std::span<const TokenId> drafts(drafted.data() + position, length),
        targets(plain.data() + position, length + 1);
    const size_t accepted = static_cast<size_t>(count_accepted(drafts, targets));
    speculative.insert(speculative.end(), drafts.begin(), drafts.begin() + static_cast<ptrdiff_t>(accepted));
    speculative.push_back(targets[accepted]);
    num_accepted += static_cast<int64_t>(accepted);
    num_drafted += static_cast<int64_t>(std::min(length, accepted + 1));
    position += accepted + 1;
  }
  EXPECT_TRUE(std::equal(speculative.begin(), speculative.end(), plain.begin()));
  EXPECT_LT(chi_square(count(speculative), softmax(kTarget, 1), static_cast<int64_t>(speculative.size())), kCritical9);
  const Law target = softmax(kTarget, 1), draft = softmax(kDraft, 1);
  double distance = 0;
  for (size_t v = 0; v < target.size(); ++v) distance += std::fabs(target[v] - draft[v]) / 2;
  const double rate = static_cast<double>(num_accepted) / static_cast<double>(num_drafted);
  RecordProperty("shared_noise_acceptance", std::to_string(rate));
  EXPECT_GE(rate, (1 - distance) / (1 + distance) - 0.005);
  EXPECT_LE(rate, 1 - distance + 0.005);  // no coupling does better
}

TEST(Distribution, RejectionSamplingIsExactByEnumeration) {
  const Law target = {0.2, 0.5, 0.3}, draft = {0.6, 0.1, 0.3};
  Law out(3, 0.0);
  for (TokenId d = 0; d < 3; ++d) {
    const double drawn = draft[static_cast<size_t>(d)], accepted = accept_probability(target, draft, d);
    out[static_cast<size_t>(d)] += drawn * accepted;
    const Law rest = residual_law(target, draft);
    for (size_t v = 0; v < 3; ++v) out[v] += drawn * (1 - accepted) * rest[v];
  }
  for (size_t v = 0; v < 3; ++v) EXPECT_NEAR(out[v], target[v], 1e-15);
  EXPECT_EQ(residual_law(target, target), target);
}

TEST(Distribution, RejectionSamplingGivesTheTargetLaw) {
  const Law target = softmax(kTarget, 1), draft = softmax(kDraft, 1);
  const std::vector<Law> draft_laws(3, draft), target_laws(4, target);
  std::vector<int64_t> counts(kVocab);
  int64_t num_tokens = 0, num_accepted = 0, num_decided = 0;
  for (uint32_t position = 0; num_tokens < kDraws;) {
    std::vector<TokenId> drafts;
    for (uint32_t j = 0; j < 3; ++j)
      drafts.push_back(draw(draft, double{uniform({3, 0, position + j, NoisePurpose::kDraft})}));
    const Verified verified = verify_by_rejection(drafts, draft_laws, target_laws, {3, 0, position});
    for (int64_t j = 0; j < verified.num_accepted; ++j) ++counts[static_cast<size_t>(drafts[static_cast<size_t>(j)])];
    ++counts[static_cast<size_t>(verified.next)];
    num_tokens += verified.num_accepted + 1;
    num_accepted += verified.num_accepted;
    num_decided += std::min<int64_t>(verified.num_accepted + 1, 3);
    position += 4;  // fresh positions, so that a redrafted position does not reuse its uniforms
  }
  EXPECT_LT(chi_square(counts, target, num_tokens), kCritical9);
  double distance = 0;
  for (size_t v = 0; v < target.size(); ++v) distance += std::fabs(target[v] - draft[v]) / 2;
  EXPECT_NEAR(static_cast<double>(num_accepted) / static_cast<double>(num_decided), 1 - distance, 0.002);
}

}  // namespace
}  // namespace deepinfer
