// SPDX-License-Identifier: MIT
#include "scheduler/draft_guard.h"

#include <gtest/gtest.h>

#include "scheduler/draft_worth.h"

namespace deepinfer {

TEST(DraftGuard, PausesWhenNothingIsAcceptedAndTriesAgainLater) {
  DraftGuard guard;
  int64_t num_drafting = 0;
  for (int step = 0; step < 3000; ++step)
    if (guard.next_step_drafts()) {
      ++num_drafting;
      guard.add(0);
    }
  EXPECT_LT(num_drafting, 120);
  EXPECT_GE(guard.num_pauses(), 2);
}

TEST(DraftGuard, LeavesADraftHeadAloneThatIsOftenRight) {
  DraftGuard guard;
  for (int step = 0; step < 3000; ++step) {
    ASSERT_TRUE(guard.next_step_drafts());
    guard.add(step % 2);
  }
  EXPECT_EQ(guard.num_pauses(), 0);
}

// A step of one row takes 1 ms, a further row 0.4 ms, drafting 0.5 ms: with four of five drafts accepted a step gives
// five tokens in 3.5 ms. Among 32 sequences a row costs as much as ever and the step's own millisecond hardly counts:
// five tokens take a sequence 2.8 ms, one takes 0.42 ms.
TEST(DraftWorth, RestsWhereRowsCostMoreThanTheySaveAndComesBackWithTheLoad) {
  const StepTime curve{.a = 0.6e6, .v = 0.4e6, .s = 0.1e6, .p = 0.4e6};
  DraftWorth worth;
  for (int step = 0; step < 100; ++step) {
    ASSERT_TRUE(worth.next_step_drafts(curve, 1));
    worth.add(5, 5);
  }
  EXPECT_NEAR(worth.worth(curve, 1), 5 / 3.5, 1e-9);
  EXPECT_FALSE(worth.next_step_drafts(curve, 32));
  EXPECT_FALSE(worth.next_step_drafts(curve, 32));
  EXPECT_TRUE(worth.next_step_drafts(curve, 1)) << "no trial is needed to know";
  EXPECT_EQ(worth.num_rests(), 1);
}

TEST(DraftWorth, ATrialFindsDraftsThatHaveBecomeBetter) {
  const StepTime curve{.a = 0.6e6, .v = 0.4e6, .s = 0.1e6, .p = 0.4e6};
  DraftWorth worth;
  int64_t num_drafting = 0;
  for (int step = 0; step < 3000; ++step)
    if (worth.next_step_drafts(curve, 1)) {
      ++num_drafting;
      worth.add(5, step < 2000 ? 1 : 5);
    }
  EXPECT_EQ(worth.num_rests(), 1);
  EXPECT_GT(num_drafting, 400);
  EXPECT_LT(num_drafting, 1000 + 24 * 6);
}

}  // namespace deepinfer
