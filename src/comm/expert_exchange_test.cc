// SPDX-License-Identifier: MIT
#include "comm/expert_exchange.h"

#include <gtest/gtest.h>

#include <vector>

namespace deepinfer {
namespace {

struct Choices {
  std::vector<int32_t> begin = {0, 2, 2, 3}, row = {0, 1, 1};
  std::vector<float> weight = {.5f, .25f, .75f};
  ExpertAssignments assignments() const { return {{begin.data(), {4}}, {row.data(), {3}}, {weight.data(), {3}}}; }
};

TEST(ExpertExchange, RefusesResultsThatDoNotFitTheDispatch) {
  const Choices choices;
  auto exchange = make_local_expert_exchange();
  const std::vector<bf16> x(8), y(8);
  ASSERT_TRUE(exchange->dispatch({x.data(), {2, 4}}, choices.assignments()).ok());
  EXPECT_EQ(exchange->combine({y.data(), {2, 4}}).status().code(), StatusCode::kInvalidArgument);
}

TEST(ExpertExchange, OneRankHandsOverWithoutCopying) {
  const Choices choices;
  auto exchange = make_local_expert_exchange();
  const std::vector<bf16> x(8), y(12);
  auto rows = exchange->dispatch({x.data(), {2, 4}}, choices.assignments());
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->x.data, x.data());
  EXPECT_EQ(rows->assignments.row.data, choices.row.data());
  auto results = exchange->combine({y.data(), {3, 4}});
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(results->data, y.data());
}

}  // namespace
}  // namespace deepinfer
