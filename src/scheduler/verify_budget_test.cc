// SPDX-License-Identifier: MIT
#include "scheduler/verify_budget.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace deepinfer {
namespace {

using Survivals = std::vector<std::vector<float>>;

Survivals from_confidences(const std::vector<std::vector<double>>& confidences) {
  Survivals out;
  for (const auto& one : confidences) {
    std::vector<float> logits;
    for (const double c : one) logits.push_back(static_cast<float>(std::log(c / (1 - c))));
    out.push_back(survivals(logits, {}));
  }
  return out;
}

std::vector<double> costs(int64_t num_requests, int64_t num_drafts, const std::function<double(int64_t)>& cost) {
  std::vector<double> out;
  for (int64_t k = 0; k <= num_drafts; ++k) out.push_back(cost(num_requests + k));
  return out;
}

double rate(const Survivals& s, int64_t k, std::span<const double> cost) {
  const std::vector<int32_t> split = split_verify_budget(s, k);
  double tokens = static_cast<double>(s.size());
  for (size_t r = 0; r < s.size(); ++r)
    for (int32_t j = 0; j < split[r]; ++j) tokens += static_cast<double>(s[r][static_cast<size_t>(j)]);
  return tokens / cost[static_cast<size_t>(k)];
}

const Survivals kThree = from_confidences({{.95, .9, .9, .8, .8}, {.7, .6, .5, .5, .4}, {.4, .3, .5, .5, .5}});

}  // namespace

// The expected schedules and rates are the worked examples of dspark-vision.md 2.8.
TEST(VerifyBudget, FollowsTheWorkedExamples) {
  struct Case {
    std::function<double(int64_t)> cost;
    std::vector<int32_t> split;
    double rate;
  };
  const auto staircase = [](int64_t b) {
    return b <= 4 ? 20.0 : b <= 8 ? 24.0 : b <= 12 ? 34.0 : b <= 16 ? 36.0 : 50.0;
  };
  const std::vector<Case> cases = {{[](int64_t b) { return 10.0 + static_cast<double>(b); }, {5, 2, 1}, .390599},
                                   {[](int64_t b) { return 2.0 + 2.0 * static_cast<double>(b); }, {2, 0, 0}, .400417},
                                   {staircase, {4, 1, 0}, .2870875}};
  for (const Case& c : cases) {
    const auto cost = costs(3, 15, c.cost);
    const int64_t budget = verify_budget(kThree, 3, cost);
    EXPECT_EQ(split_verify_budget(kThree, budget), c.split);
    EXPECT_NEAR(rate(kThree, budget, cost), c.rate, 1e-6);
    EXPECT_EQ(verify_budget_early_stop(kThree, 3, cost), budget);
  }
}

TEST(VerifyBudget, GlobalRuleLooksBeyondAStepOfTheCurve) {
  const Survivals four(4, from_confidences({{.9, .9, .9, .9, .9}})[0]);
  const auto cost = costs(4, 20, [](int64_t b) { return b <= 4 ? 10.0 : 20.0; });
  EXPECT_EQ(verify_budget_early_stop(four, 4, cost), 0);
  EXPECT_EQ(verify_budget(four, 4, cost), 20);
  EXPECT_NEAR(rate(four, 20, cost), .937, 1e-3);
}

TEST(VerifyBudget, SplitIsAlwaysAPrefixOfEachRequestEvenOnTies) {
  const Survivals ties(3, {1.0f, 1.0f, 1.0f});
  EXPECT_EQ(split_verify_budget(ties, 4), (std::vector<int32_t>{2, 1, 1}));
  EXPECT_EQ(split_verify_budget(ties, 100), (std::vector<int32_t>{3, 3, 3}));
  EXPECT_EQ(split_verify_budget(ties, 0), (std::vector<int32_t>{0, 0, 0}));
}

TEST(VerifyBudget, TemperaturesScaleTheLogits) {
  const std::vector<float> logits = {2.0f, 2.0f}, temperatures = {2.0f};
  const auto s = survivals(logits, temperatures);
  EXPECT_NEAR(s[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(s[1], s[0] / (1 + std::exp(-2.0)), 1e-6);
}

}  // namespace deepinfer
