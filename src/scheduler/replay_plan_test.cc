// SPDX-License-Identifier: MIT
#include "scheduler/replay_plan.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

constexpr ReplayGeometry kFlash{.window = 128, .num_layers = 40, .num_encoder_layers = 21};

// Figures of the specification's decision on replay rows: 2,414 / 2,668 / 5,081.
TEST(ReplayPlan, RowsFollowTheFormula) {
  EXPECT_EQ(replay_rows(kFlash, 19), 2414);
  EXPECT_EQ(replay_rows(kFlash, 21), 2668);
  EXPECT_EQ(replay_rows(kFlash, 40), 5081);
}

TEST(ReplayPlan, ExactHitThatSavesNothingIsNotAdopted) {
  const ReplayPlan plan = plan_replay(kFlash, ReplayMode::kExact, 2560, 6000);
  EXPECT_FALSE(plan.adopts_hit);
  EXPECT_EQ(plan.reason, "exact_replay");
  EXPECT_EQ(plan.run_begin, 0);
  EXPECT_EQ(plan.limits.global_kv_begin, 0);
}

TEST(ReplayPlan, ExactStartIsTheEarlierOfTheTwoBounds) {
  const ReplayPlan encoder_bound = plan_replay(kFlash, ReplayMode::kExact, 12800, 40000);
  EXPECT_EQ(encoder_bound.run_begin, 12800 - 2668 + 1);
  const ReplayPlan tail_bound = plan_replay(kFlash, ReplayMode::kExact, 12800, 12900);
  EXPECT_EQ(tail_bound.run_begin, 12900 - 5081);
  EXPECT_EQ(tail_bound.limits.decoder_begin, 12900 - 2414);
  EXPECT_EQ(tail_bound.limits.global_kv_begin, 12800);
}

TEST(ReplayPlan, FastRunsOneWindowBeforeTheHitAndOneAtTheEnd) {
  const ReplayPlan plan = plan_replay(kFlash, ReplayMode::kFast, 1280, 5000);
  EXPECT_TRUE(plan.adopts_hit);
  EXPECT_EQ(plan.run_begin, 1152);
  EXPECT_EQ(plan.limits.window_begin, 1152);
  EXPECT_EQ(plan.limits.decoder_begin, 4872);
  EXPECT_EQ(plan.limits.decoder_window_begin, 4872);
  EXPECT_FALSE(plan_replay(kFlash, ReplayMode::kFast, 128, 5000).adopts_hit);
}

TEST(ReplayPlan, OffRunsEverything) {
  const ReplayPlan plan = plan_replay(kFlash, ReplayMode::kOff, 1280, 5000);
  EXPECT_FALSE(plan.adopts_hit);
  EXPECT_EQ(plan.reason, "replay_off");
  EXPECT_EQ(plan.limits.decoder_begin, 0);
}

// A hit whose last block has its windows stored goes on where it ends; rows that run in every layer must all run.
TEST(ReplayPlan, BehindATailNothingIsReplayed) {
  TailRange range = useful_tails(kFlash, ReplayMode::kFast, 1280, 5000);
  EXPECT_EQ(range.worse, 1280 - 128);
  EXPECT_EQ(range.best, 1280);
  const ReplayPlan plan = plan_from_tail(kFlash, ReplayMode::kFast, 1280, 5000, 1280);
  EXPECT_TRUE(plan.adopts_hit);
  EXPECT_EQ(plan.run_begin, 1280);
  EXPECT_EQ(plan.limits.window_begin, 0);
  EXPECT_EQ(plan.limits.decoder_begin, 5000 - 128);
  EXPECT_EQ(plan.limits.global_kv_begin, 1280);
  range = useful_tails(kFlash, ReplayMode::kExact, 12800, 12900);
  EXPECT_EQ(range.worse, 12900 - 5081);
  EXPECT_EQ(range.best, 12900 - 2414);
  EXPECT_EQ(useful_tails(kFlash, ReplayMode::kExact, 2560, 6000).best, 2560) << "a hit that replay could not use";
  EXPECT_TRUE(useful_tails(kFlash, ReplayMode::kExact, 2304, 2400).empty()) << "every row runs in every layer";
  EXPECT_TRUE(useful_tails(kFlash, ReplayMode::kOff, 1280, 5000).empty());
  EXPECT_TRUE(useful_tails(kFlash, ReplayMode::kFast, 0, 5000).empty());
}

}  // namespace
}  // namespace deepinfer
