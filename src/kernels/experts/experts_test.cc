// SPDX-License-Identifier: MIT
#include "kernels/experts/experts.h"

#include <fmt/format.h>

#include <cstring>
#include <set>

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

struct GoldenExpert {
  std::vector<uint8_t> w1, s1, w2, s2, w3, s3;
  ExpertMatrices matrices;
};
GoldenExpert load(const std::string& kind) {
  const auto bytes = [&](const char* name) { return units().raw<uint8_t>("expert." + kind + "." + name); };
  GoldenExpert e{bytes("w1"), bytes("w1.s"), bytes("w2"), bytes("w2.s"), bytes("w3"), bytes("w3.s"), {}};
  if (kind == "fp8")
    e.matrices = {Fp8Matrix{e.w1.data(), e.s1.data(), 96, 64}, Fp8Matrix{e.w3.data(), e.s3.data(), 96, 64},
                  Fp8Matrix{e.w2.data(), e.s2.data(), 64, 96}};
  else
    e.matrices = {Fp4Matrix{e.w1.data(), e.s1.data(), 96, 64}, Fp4Matrix{e.w3.data(), e.s3.data(), 96, 64},
                  Fp4Matrix{e.w2.data(), e.s2.data(), 64, 96}};
  return e;
}
}  // namespace

TEST(Experts, EqualTheGoldenOnesWithAndWithoutClampAndWeight) {
  const auto x = units().raw<bf16>("expert.x");
  const auto weights = units().raw<float>("expert.weights");
  const std::vector<int32_t> begin = {0, 6};
  for (const char* kind : {"fp8", "fp4"}) {
    const GoldenExpert expert = load(kind);
    for (const auto& [name, limit] : {std::pair<const char*, float>{"10", 10.f}, {"0.5", 0.5f}, {"0", 0.f}}) {
      for (const bool weighted : {true, false}) {
        const auto expected =
            units().raw<bf16>(std::string("expert.") + kind + ".lim" + name + (weighted ? ".y" : ".y_noweight"));
        on_every_row<ExpertsParams>(experts_rows(), [&](const auto& row, const ExecutionContext& context) {
          SCOPED_TRACE(std::string(kind) + " limit " + name + (weighted ? " weighted" : ""));
          std::vector<bf16> y(expected.size());
          row.launch(context, {.x = {x.data(), {6, 64}},
                               .experts = {&expert.matrices, 1},
                               .begin = {begin.data(), {2}},
                               .weight = {weighted ? weights.data() : nullptr, {6}},
                               .swiglu_limit = limit,
                               .out = {y.data(), {6, 64}}});
          expect_near_exact(y, expected);
        });
      }
    }
  }
}

struct OwnedExperts {
  std::vector<OwnedWeights> owned;
  std::vector<ExpertMatrices> matrices;
  OwnedExperts(Rng& rng, size_t count, int64_t hidden, int64_t inner, bool is_fp4) : matrices(count) {
    for (size_t i = 0; i < 3 * count; ++i) {
      const int64_t out = i % 3 == 2 ? hidden : inner, in = i % 3 == 2 ? inner : hidden;
      owned.push_back(is_fp4 ? random_fp4(rng, out, in) : random_fp8(rng, out, in));
    }
    const auto weight = [&](size_t i) { return is_fp4 ? WeightMatrix(owned[i].fp4) : WeightMatrix(owned[i].fp8); };
    for (size_t e = 0; e < count; ++e) matrices[e] = {weight(3 * e), weight(3 * e + 1), weight(3 * e + 2)};
  }
};

TEST(Experts, EveryRowEqualsTheReferenceWithUnevenLoads) {
  struct Case {
    int64_t hidden, inner, tokens;
    std::vector<int32_t> begin;
    bool is_fp4;
  };
  // Narrow widths, and some that tensor cores take in whole tiles, with rows for every kernel there is.
  for (const Case& c : {Case{96, 160, 13, {0, 1, 1, 12, 19}, true}, Case{512, 256, 7, {0, 1, 1, 7, 12}, true},
                        Case{512, 256, 40, {0, 1, 1, 30, 41}, true}, Case{256, 512, 40, {0, 70, 70, 71, 300}, true},
                        Case{512, 256, 5, {0, 5, 5, 6, 9}, false}, Case{256, 256, 40, {0, 70, 70, 71, 300}, false}}) {
    Rng rng(81);
    const OwnedExperts experts(rng, 4, c.hidden, c.inner, c.is_fp4);
    const auto x = random_bf16(rng, c.tokens * c.hidden, 1.f);
    const int64_t assignments = c.begin.back();
    std::vector<int32_t> token;
    for (int64_t a = 0; a < assignments; ++a) token.push_back(static_cast<int32_t>(rng.below(c.tokens)));
    const auto weight = random_f32(rng, assignments, 1.f);
    SCOPED_TRACE(std::to_string(c.hidden) + " x " + std::to_string(c.inner) + ", " + std::to_string(assignments));
    expect_rows_agree(experts_rows(), std::vector<bf16>(static_cast<size_t>(assignments * c.hidden)), [&](auto& y) {
      return ExpertsParams{.x = {x.data(), {c.tokens, c.hidden}},
                           .experts = experts.matrices,
                           .begin = {c.begin.data(), {5}},
                           .token = {token.data(), {assignments}},
                           .weight = {weight.data(), {assignments}},
                           .swiglu_limit = 2.f,
                           .out = {y.data(), {assignments, c.hidden}}};
    });
  }
}

// Weights in planes: the bits of the reference over rows, at every level, with few rows and with many for an expert.
TEST(Experts, WeightsInPlanesGiveTheBitsOfWeightsInRows) {
  for (const bool is_fp4 : {true, false}) {
    Rng rng(85);
    const int64_t hidden = 256, inner = 160, tokens = 40;
    const std::vector<int32_t> begin = {0, 1, 1, 9, 79};
    const OwnedExperts experts(rng, 4, hidden, inner, is_fp4);
    std::vector<OwnedWeights> turned;
    for (const OwnedWeights& w : experts.owned) turned.push_back(in_planes(w));
    std::vector<ExpertMatrices> planes(4);
    const auto weight = [&](size_t i) { return is_fp4 ? WeightMatrix(turned[i].fp4) : WeightMatrix(turned[i].fp8); };
    for (size_t e = 0; e < 4; ++e) planes[e] = {weight(3 * e), weight(3 * e + 1), weight(3 * e + 2)};
    const auto x = random_bf16(rng, tokens * hidden, 1.f);
    std::vector<int32_t> token;
    for (int64_t a = 0; a < begin.back(); ++a) token.push_back(static_cast<int32_t>(rng.below(tokens)));
    std::vector<bf16> expected(static_cast<size_t>(begin.back() * hidden));
    const auto params = [&](const std::vector<ExpertMatrices>& matrices, std::vector<bf16>& y) {
      return ExpertsParams{.x = {x.data(), {tokens, hidden}},
                           .experts = matrices,
                           .begin = {begin.data(), {5}},
                           .token = {token.data(), {begin.back()}},
                           .swiglu_limit = 2.f,
                           .out = {y.data(), {begin.back(), hidden}}};
    };
    Scratch scratch;
    experts_rows()[0].launch({nullptr, &scratch}, params(experts.matrices, expected));
    on_every_host_row<ExpertsParams>(experts_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<bf16> y(expected.size());
      ASSERT_TRUE(check_values(params(planes, y)).ok());
      row.launch(context, params(planes, y));
      EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(bf16)), 0);
    });
  }
}

// A row's result depends neither on the rows computed with it nor on the kernel that their number chooses.
TEST(Experts, ARowIsTheSameInBatchesOfAnySize) {
  const int64_t hidden = 512, inner = 512, rows = 540;
  for (const size_t count : {size_t{1}, size_t{2}}) {
    for (const bool is_fp4 : {true, false}) {
      Rng rng(84);
      const OwnedExperts experts(rng, count, hidden, inner, is_fp4);
      const auto x = random_bf16(rng, rows * hidden, 1.f);
      on_every_row<ExpertsParams>(experts_rows(), [&](const auto& row, const ExecutionContext& context) {
        std::vector<bf16> batch(static_cast<size_t>(rows * hidden)), part(batch.size());
        const auto run = [&](int64_t first, int64_t size,
                             std::vector<bf16>& y) {  // all of them rows of the last expert
          std::vector<int32_t> begin(count + 1, 0);
          begin[count] = static_cast<int32_t>(size);
          row.launch(context, {.x = {x.data() + first * hidden, {size, hidden}},
                               .experts = experts.matrices,
                               .begin = {begin.data(), {static_cast<int64_t>(count) + 1}},
                               .swiglu_limit = 2.f,
                               .out = {y.data() + first * hidden, {size, hidden}}});
        };
        run(0, rows, batch);
        const int64_t pieces[][2] = {{0, 1}, {1, 7}, {8, 33}, {41, 150}, {191, 285}, {476, 64}};
        for (const auto& [from, size] : pieces) {
          run(from, size, part);
          for (int64_t r = from; r < from + size; ++r)
            ASSERT_EQ(std::memcmp(&batch[r * hidden], &part[r * hidden], hidden * sizeof(bf16)), 0)
                << fmt::format("{} experts, fp4 {}, row {} in a batch of {} from {} on", count, is_fp4, r, size, from);
        }
      });
    }
  }
}

// 1,500 tokens: more choices than a block of any row takes at once.
class ExpertPlan : public testing::TestWithParam<int64_t> {};

TEST_P(ExpertPlan, SortsByExpertAndKeepsTokensInOrder) {
  Rng rng(82);
  const int64_t tokens = GetParam();
  const int64_t choices = 3, experts = 11;
  std::vector<int32_t> expert;
  for (int64_t t = 0; t < tokens; ++t) {
    std::set<int32_t> chosen;
    while (chosen.size() < 3) chosen.insert(static_cast<int32_t>(rng.below(experts)));
    for (const int32_t e : chosen) expert.push_back(e);
    if (t % 2) std::swap(expert[expert.size() - 1], expert[expert.size() - 3]);
  }
  const auto weight = random_f32(rng, tokens * choices, 1.f);
  on_every_row<ExpertPlanParams>(expert_plan_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<int32_t> begin(experts + 1), token(static_cast<size_t>(tokens * choices)), assignment(token.size());
    std::vector<float> sorted_weight(token.size());
    const ExpertPlanParams p{.expert = {expert.data(), {tokens, choices}},
                             .weight = {weight.data(), {tokens, choices}},
                             .begin = {begin.data(), {experts + 1}},
                             .token = {token.data(), {tokens * choices}},
                             .assignment_weight = {sorted_weight.data(), {tokens * choices}},
                             .assignment = {assignment.data(), {tokens, choices}}};
    ASSERT_TRUE(check(p).ok());
    row.launch(context, p);
    EXPECT_EQ(begin[0], 0);
    EXPECT_EQ(begin[experts], tokens * choices);
    for (int64_t e = 0; e < experts; ++e)
      for (int32_t a = begin[static_cast<size_t>(e)]; a < begin[static_cast<size_t>(e) + 1]; ++a) {
        if (a > begin[static_cast<size_t>(e)]) {
          EXPECT_LT(token[static_cast<size_t>(a) - 1], token[static_cast<size_t>(a)]);
        }
        bool found = false;
        for (int64_t c = 0; c < choices; ++c) {
          const size_t choice = static_cast<size_t>(token[static_cast<size_t>(a)] * choices + c);
          found |= expert[choice] == e && weight[choice] == sorted_weight[static_cast<size_t>(a)];
        }
        EXPECT_TRUE(found);
      }
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t c = 0; c < choices; ++c) {
        EXPECT_EQ(token[static_cast<size_t>(assignment[static_cast<size_t>(t * choices + c)])], t);
        if (c > 0) {
          EXPECT_LT(assignment[static_cast<size_t>(t * choices + c - 1)],
                    assignment[static_cast<size_t>(t * choices + c)]);
        }
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Tokens, ExpertPlan, testing::Values(1, 37, 1500));

// Choices and weights as columns of wider rows, in which other numbers stand: the plan is that of the choices alone.
TEST(ExpertPlanOfColumns, RowsThatStandApartGiveThePlanOfRowsThatFollowEachOther) {
  constexpr int64_t kChoices = 3, kExperts = 11, kStride = 5;
  Rng rng(84);
  for (const int64_t tokens : {1, 37, 1500}) {
    std::vector<int32_t> flat, apart(static_cast<size_t>(tokens * kStride), 4);
    const auto flat_weight = random_f32(rng, tokens * kChoices, 1.f);
    std::vector<float> apart_weight(apart.size(), -7.f);
    for (int64_t i = 0; i < tokens * kChoices; ++i) {
      flat.push_back(static_cast<int32_t>(rng.below(kExperts)));
      const size_t at = static_cast<size_t>(i / kChoices * kStride + i % kChoices);
      apart[at] = flat.back();
      apart_weight[at] = flat_weight[static_cast<size_t>(i)];
    }
    on_every_row<ExpertPlanParams>(expert_plan_rows(), [&](const auto& row, const ExecutionContext& context) {
      struct Plan {
        std::vector<int32_t> begin, token, assignment;
        std::vector<float> weight;
        bool operator==(const Plan&) const = default;
      };
      const auto plan_of = [&](const int32_t* expert, const float* weight, int64_t stride) {
        const size_t all = static_cast<size_t>(tokens * kChoices);
        Plan plan{std::vector<int32_t>(kExperts + 1), std::vector<int32_t>(all), std::vector<int32_t>(all),
                  std::vector<float>(all)};
        const ExpertPlanParams p{.expert = {expert, {tokens, kChoices}, {stride, 1}},
                                 .weight = {weight, {tokens, kChoices}, {stride, 1}},
                                 .begin = {plan.begin.data(), {kExperts + 1}},
                                 .token = {plan.token.data(), {tokens * kChoices}},
                                 .assignment_weight = {plan.weight.data(), {tokens * kChoices}},
                                 .assignment = {plan.assignment.data(), {tokens, kChoices}}};
        EXPECT_TRUE(check(p).ok()) << check(p).message();
        row.launch(context, p);
        return plan;
      };
      EXPECT_TRUE(plan_of(apart.data(), apart_weight.data(), kStride) ==
                  plan_of(flat.data(), flat_weight.data(), kChoices))
          << tokens << " tokens";
    });
  }
}

TEST(ExpertCombine, AddsInAscendingExpertOrderThenShared) {
  Rng rng(83);
  for (const int64_t hidden : {1, 31, 96, 1160}) {
    const int64_t tokens = 4, choices = 3;
    const auto y = random_bf16(rng, tokens * choices * hidden, 100.f), shared = random_bf16(rng, tokens * hidden, 1.f);
    std::vector<int32_t> assignment;
    for (int32_t i = 0; i < tokens * choices; ++i)
      assignment.push_back(static_cast<int32_t>((i % choices) * tokens + i / choices));
    for (const bool with_shared : {true, false}) {
      on_every_row<ExpertCombineParams>(expert_combine_rows(), [&](const auto& row, const ExecutionContext& context) {
        std::vector<bf16> out(static_cast<size_t>(tokens * hidden));
        row.launch(context, {.y = {y.data(), {tokens * choices, hidden}},
                             .assignment = {assignment.data(), {tokens, choices}},
                             .shared = {with_shared ? shared.data() : nullptr, {tokens, hidden}},
                             .out = {out.data(), {tokens, hidden}}});
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t d = 0; d < hidden; ++d) {
            float sum = 0;
            for (int64_t c = 0; c < choices; ++c)
              sum += to_float(y[static_cast<size_t>((c * tokens + t) * hidden + d)]);
            if (with_shared) sum += to_float(shared[static_cast<size_t>(t * hidden + d)]);
            EXPECT_EQ(out[static_cast<size_t>(t * hidden + d)].bits, to_bf16(sum).bits);
          }
      });
    }
  }
}

}  // namespace deepinfer
