// SPDX-License-Identifier: MIT
#include "engine/step_executor.h"

#include <gtest/gtest.h>

#include <atomic>

namespace deepinfer {
namespace {

// Jobs in pairs, the first of which is waited for, as steps are: every wait ends, and behind its job.
TEST(StepExecutor, EveryWaitEndsBehindItsJob) {
  for (const bool has_thread : {false, true})
    for (const bool feeds_device : {false, true}) {
      StepExecutor executor(has_thread, feeds_device);
      std::atomic<uint64_t> num_run{0};
      const auto count = [&] { ++num_run; };
      uint64_t picks = executor.post(count);
      for (int step = 0; step < 5000; ++step) {
        executor.post(count);  // the next step's rows
        const uint64_t next = executor.post(count);
        ASSERT_TRUE(executor.wait(picks));
        ASSERT_GE(num_run.load(), picks);
        picks = next;
      }
      executor.drain();
      EXPECT_EQ(num_run.load(), 10001u);
    }
}

// Without anything behind it a job wakes its caller at once.
TEST(StepExecutor, AJobWithNothingBehindItIsNotPutOff) {
  StepExecutor executor(true, true);
  for (int step = 0; step < 2000; ++step) ASSERT_TRUE(executor.wait(executor.post([] {})));
}

}  // namespace
}  // namespace deepinfer
