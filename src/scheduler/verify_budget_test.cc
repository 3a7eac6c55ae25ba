// SPDX-License-Identifier: MIT
#include "scheduler/verify_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "base/philox.h"
#include "scheduler/batch.h"
#include "scheduler/foretold_rate.h"

namespace deepinfer {
namespace {

SurvivalTable from_confidences(const std::vector<std::vector<double>>& confidences) {
  SurvivalTable out;
  for (const auto& one : confidences) {
    std::vector<float> logits;
    for (const double c : one) logits.push_back(static_cast<float>(std::log(c / (1 - c))));
    out.add_logits(logits, {}, 100, 1.0f);
  }
  return out;
}

std::vector<double> costs(int64_t num_requests, int64_t num_drafts, const std::function<double(int64_t)>& cost) {
  std::vector<double> out;
  for (int64_t k = 0; k <= num_drafts; ++k) out.push_back(cost(num_requests + k));
  return out;
}

std::vector<int32_t> split(const SurvivalTable& s, int64_t budget) {
  VerifyScratch scratch;
  std::vector<int32_t> counts;
  split_verify_budget(s, budget, scratch, counts);
  return counts;
}

double rate(const SurvivalTable& s, int64_t k, std::span<const double> cost) {
  const std::vector<int32_t> counts = split(s, k);
  double tokens = static_cast<double>(s.num_requests());
  for (int64_t r = 0; r < s.num_requests(); ++r)
    for (int32_t j = 0; j < counts[static_cast<size_t>(r)]; ++j)
      tokens += static_cast<double>(s.request(r)[static_cast<size_t>(j)]);
  return tokens / cost[static_cast<size_t>(k)];
}

int64_t global_budget(const SurvivalTable& s, std::span<const double> cost) {
  VerifyScratch scratch;
  return verify_budget(s, static_cast<double>(s.num_requests()), {.table = cost}, scratch);
}
int64_t early_budget(const SurvivalTable& s, std::span<const double> cost) {
  VerifyScratch scratch;
  return verify_budget_early_stop(s, static_cast<double>(s.num_requests()), {.table = cost}, scratch);
}

const SurvivalTable kThree = from_confidences({{.95, .9, .9, .8, .8}, {.7, .6, .5, .5, .4}, {.4, .3, .5, .5, .5}});

// Whatever the temperatures say of the head's drafts.
TEST(VerifyBudget, ForetoldDraftsSurviveByTheirOwnRate) {
  SurvivalTable table;
  const float logits[] = {kForetoldConfidence, kForetoldConfidence, 0.0f};
  const float temperatures[] = {8.0f, 8.0f, 1.0f};
  table.add_logits(logits, temperatures, 3, 0.5f);
  table.add_foretold(2, 0.75f);
  table.add_foretold(0, 0.75f);
  table.add_certain(4);
  const auto request = [&](int64_t i) { return std::vector<float>(table.request(i).begin(), table.request(i).end()); };
  EXPECT_EQ(request(0), (std::vector<float>{0.5f, 0.25f, 0.125f}));
  EXPECT_EQ(request(1), (std::vector<float>{0.75f, 0.5625f}));
  EXPECT_TRUE(request(2).empty());
  EXPECT_EQ(request(3), std::vector<float>(4, 1.0f));
}

// Drafts a:b stand for a drafts verified of which the first b were accepted.
TEST(ForetoldRate, FollowsWhatStandsAndForgetsWhereNothingIsTried) {
  ForetoldRate rate;
  EXPECT_GT(rate.rate(), 0.95f);
  for (int i = 0; i < 200; ++i) rate.add(7, 7, 7);
  EXPECT_GT(rate.rate(), 0.99f);
  for (int i = 0; i < 400; ++i) rate.add(7, 7, 1);  // one stands, the next does not, five say nothing
  EXPECT_NEAR(rate.rate(), 0.5f, 0.02f);
  for (int i = 0; i < 2'000; ++i) rate.add(7, 0, 0);
  EXPECT_GT(rate.rate(), 0.95f) << "tried again";
  for (int i = 0; i < 400; ++i) rate.add(2, 7, 5);  // the head's drafts behind them are not counted
  EXPECT_GT(rate.rate(), 0.99f);
}

TEST(ForetoldRate, ALowRateEndsVerifyingWhereRowsCostAsMuchAsSteps) {
  VerifyScratch scratch;
  const VerifyCost dear{.base_ns = 100, .row_ns = 70}, cheap{.base_ns = 100, .row_ns = 1};
  for (const auto& [foretold_rate, expected] :
       {std::pair{0.99f, int64_t{7}}, {0.75f, int64_t{1}}, {0.5f, int64_t{0}}}) {
    SurvivalTable table;
    table.add_foretold(7, foretold_rate);
    EXPECT_EQ(verify_budget(table, 1, dear, scratch), expected) << foretold_rate;
    EXPECT_GE(verify_budget(table, 1, cheap, scratch), 4) << foretold_rate;
  }
}

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
    const int64_t budget = global_budget(kThree, cost);
    EXPECT_EQ(split(kThree, budget), c.split);
    EXPECT_NEAR(rate(kThree, budget, cost), c.rate, 1e-6);
    EXPECT_EQ(early_budget(kThree, cost), budget);
  }
}

TEST(VerifyBudget, GlobalRuleLooksBeyondAStepOfTheCurve) {
  const std::vector<double> sure(5, .9);
  const SurvivalTable four = from_confidences({sure, sure, sure, sure});
  const auto cost = costs(4, 20, [](int64_t b) { return b <= 4 ? 10.0 : 20.0; });
  EXPECT_EQ(early_budget(four, cost), 0);
  EXPECT_EQ(global_budget(four, cost), 20);
  EXPECT_NEAR(rate(four, 20, cost), .937, 1e-3);
}

TEST(VerifyBudget, SplitIsAlwaysAPrefixOfEachRequestEvenOnTies) {
  SurvivalTable ties;
  for (int i = 0; i < 3; ++i) ties.add(std::vector<float>{1.0f, 1.0f, 1.0f});
  EXPECT_EQ(split(ties, 4), (std::vector<int32_t>{2, 1, 1}));
  EXPECT_EQ(split(ties, 100), (std::vector<int32_t>{3, 3, 3}));
  EXPECT_EQ(split(ties, 0), (std::vector<int32_t>{0, 0, 0}));
}

// The order is total: survival, then draft, then request. Few distinct values, so that ties are the rule.
TEST(VerifyBudget, SplitTakesWhatComesFirstInOrder) {
  struct Draft {
    float survival;
    int32_t draft, request;
  };
  Rng rng(7);
  for (int i = 0; i < 500; ++i) {
    SurvivalTable table;
    std::vector<Draft> drafts;
    const auto num_requests = static_cast<int32_t>(1 + rng.below(12));
    for (int32_t r = 0; r < num_requests; ++r) {
      std::vector<float> one(rng.below(6));
      float survival = 1;
      for (float& a : one) a = survival *= i % 2 ? rng.uniform() : 1.0f - 0.5f * static_cast<float>(rng.below(2));
      table.add(one);
      for (size_t j = 0; j < one.size(); ++j) drafts.push_back({one[j], static_cast<int32_t>(j), r});
    }
    std::ranges::sort(drafts, [](const Draft& x, const Draft& y) {
      return std::tuple(-x.survival, x.draft, x.request) < std::tuple(-y.survival, y.draft, y.request);
    });
    const size_t budget = rng.below(drafts.size() + 2);
    std::vector<int32_t> expected(static_cast<size_t>(num_requests));
    for (size_t k = 0; k < std::min(budget, drafts.size()); ++k) ++expected[static_cast<size_t>(drafts[k].request)];
    EXPECT_EQ(split(table, static_cast<int64_t>(budget)), expected) << "case " << i;
  }
}

TEST(VerifyBudget, LinearCostsGiveWhatATableOfThemGives) {
  Rng rng(5);
  for (int i = 0; i < 500; ++i) {
    SurvivalTable table;
    for (uint64_t r = 1 + rng.below(20); r > 0; --r) {
      std::vector<float> one(1 + rng.below(5));
      float survival = 1;
      for (float& a : one) a = survival *= rng.uniform();
      table.add(one);
    }
    const double base = 1 + 50 * rng.uniform(), row = 3 * rng.uniform();
    std::vector<double> cost;
    for (int64_t k = 0; k <= table.num_drafts(); ++k) cost.push_back(base + static_cast<double>(k) * row);
    VerifyScratch scratch;
    const int64_t linear =
        verify_budget(table, static_cast<double>(table.num_requests()), {.base_ns = base, .row_ns = row}, scratch);
    EXPECT_EQ(linear, global_budget(table, cost));
  }
}

TEST(VerifyBudget, TemperaturesScaleTheLogits) {
  const std::vector<float> logits = {2.0f, 2.0f}, temperatures = {2.0f};
  SurvivalTable table;
  table.add_logits(logits, temperatures, 2, 1.0f);
  const auto s = table.request(0);
  EXPECT_NEAR(s[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(s[1], s[0] / (1 + std::exp(-2.0)), 1e-6);
}

}  // namespace deepinfer
