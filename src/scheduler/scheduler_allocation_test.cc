// SPDX-License-Identifier: MIT
// A step in steady state - many sequences that decode and draft, blocks filled, published and taken - allocates
// nothing, with and without a step under way. The allocation functions of this test program count.
#include <gtest/gtest.h>

#include "base/allocation_count.h"
#include "scheduler/steady_steps.h"

namespace deepinfer {
namespace {

void expect_no_allocation(int64_t num_ahead) {
  SteadySteps steps(64, num_ahead);
  size_t before = 0;
  int64_t num_published = 0;
  for (int64_t step = 0; step < 800; ++step) {
    if (step == 300) {
      before = num_allocations;
      num_published = steps.cache.stats().num_published;
    }
    steps.plan(step);
    steps.answer(step);
    steps.commit(step, step);
  }
  EXPECT_EQ(num_allocations - before, 0u);
  EXPECT_GT(steps.cache.stats().num_published - num_published, 100);
}

TEST(SchedulerAllocation, StepsInSteadyStateAllocateNothing) { expect_no_allocation(0); }
TEST(SchedulerAllocation, StepsPlannedWhileOneRunsAllocateNothing) { expect_no_allocation(1); }

}  // namespace
}  // namespace deepinfer
