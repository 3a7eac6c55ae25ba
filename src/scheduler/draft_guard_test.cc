// SPDX-License-Identifier: MIT
#include "scheduler/draft_guard.h"

#include <gtest/gtest.h>

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

}  // namespace deepinfer
