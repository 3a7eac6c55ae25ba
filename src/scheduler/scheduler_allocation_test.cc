// SPDX-License-Identifier: MIT
// A step in steady state - many sequences that decode and draft, blocks filled, published and taken - allocates
// nothing, with and without a step under way. The allocation functions of this test program count.
#include <gtest/gtest.h>

#include <vector>

#include "base/allocation_count.h"
#include "base/philox.h"
#include "scheduler/scheduler.h"

namespace deepinfer {
namespace {

constexpr int64_t kDrafts = 5, kSequences = 64;

void answer(const Batch& batch, Rng& rng, StepOutput& output) {
  output.step = batch.step;
  output.sequences.resize(batch.sequences.size());
  int64_t budget = batch.verify_budget;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& rows = batch.sequences[i];
    SequenceOutput& one = output.sequences[i];
    one.id = rows.id;
    one.tokens.clear();
    one.drafts.assign(kDrafts, 7);
    one.confidences.assign(kDrafts, 1.0f);
    if (!rows.sample) continue;
    one.num_verified = rows.follows ? std::min(budget, rows.follow_drafts_max) : rows.num_logits_rows - 1;
    if (rows.follows) budget -= one.num_verified;
    one.num_rows = 1 + one.num_verified;
    one.num_accepted = static_cast<int64_t>(rng.below(static_cast<uint64_t>(one.num_verified + 1)));
    for (int64_t j = 0; j <= one.num_accepted; ++j) one.tokens.push_back(static_cast<TokenId>(rng.below(1000)));
  }
}

void expect_no_allocation(size_t num_ahead) {
  PrefixCache cache(kSequences * 64, 0);
  SchedulerOptions options;
  options.num_lanes = kSequences;
  options.num_drafts = kDrafts;
  options.context_tokens_max = 1 << 16;
  options.replay = {.window = 128, .num_layers = 40, .num_encoder_layers = 21};
  options.profile = {.a = 4e6, .b = 12e3, .d = 0.01, .e = 0.005, .r = 1.5e6, .k = 2e4, .v = 4e4};
  Scheduler scheduler(options, cache);
  Rng rng(1);
  for (int64_t i = 0; i < kSequences; ++i) {
    SequenceRequest request{.id = static_cast<SequenceId>(i), .prompt = {}, .max_output_tokens = 7000};
    request.prompt.assign(200, static_cast<TokenId>(i));
    ASSERT_TRUE(scheduler.submit(std::move(request), 0).ok());
  }
  Batch batch;
  StepOutput outputs[2];
  std::vector<SequenceDelta> deltas;
  size_t before = 0;
  int64_t num_published = 0;
  for (size_t step = 0; step < 800; ++step) {
    if (step == 300) {
      before = num_allocations;
      num_published = cache.stats().num_published;
    }
    scheduler.plan(static_cast<int64_t>(step), batch);
    answer(batch, rng, outputs[step % 2]);
    if (step < num_ahead) continue;
    scheduler.commit(outputs[(step - num_ahead) % 2], static_cast<int64_t>(step), deltas);
    scheduler.add_step_time(scheduler.predicted_step_ns());
  }
  EXPECT_EQ(num_allocations - before, 0u);
  EXPECT_GT(cache.stats().num_published - num_published, 100);
}

TEST(SchedulerAllocation, StepsInSteadyStateAllocateNothing) { expect_no_allocation(0); }
TEST(SchedulerAllocation, StepsPlannedWhileOneRunsAllocateNothing) { expect_no_allocation(1); }

}  // namespace
}  // namespace deepinfer
