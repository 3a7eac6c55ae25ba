// SPDX-License-Identifier: MIT
// Scheduler and kv time per step with R running requests that all draft: plan() plus commit(), on one core, with the
// heap allocations of a step counted. Goals: 40 us at 64 requests, 100 us at 512.
#include <fmt/format.h>

#include "base/bench.h"
#include "base/clock.h"
#include "base/philox.h"
#include "scheduler/scheduler.h"

namespace deepinfer {
namespace {

constexpr int64_t kNumDrafts = 5, kPromptTokens = 200;

StepOutput answer(const Batch& batch, Rng& rng) {
  StepOutput output{.step = batch.step};
  output.sequences.reserve(batch.sequences.size());
  for (const BatchSequence& rows : batch.sequences) {
    SequenceOutput one{.id = rows.id, .lane = rows.lane};
    if (rows.sample) {
      one.num_accepted = static_cast<int64_t>(rng.below(static_cast<uint64_t>(rows.num_logits_rows)));
      for (int64_t i = 0; i <= one.num_accepted; ++i) one.tokens.push_back(static_cast<TokenId>(rng.below(1000)));
      for (int64_t i = 0; i < kNumDrafts; ++i) {
        one.drafts.push_back(static_cast<TokenId>(rng.below(1000)));
        one.confidences.push_back(4 * rng.uniform() - 1);
      }
    }
    output.sequences.push_back(std::move(one));
  }
  return output;
}

void run_case(int64_t num_requests, BenchReport& report) {
  PrefixCache cache(num_requests * 64, 0);
  SchedulerOptions options;
  options.num_lanes = num_requests;
  options.rows_max = num_requests * (1 + kNumDrafts) + 512;
  options.num_drafts = kNumDrafts;
  options.context_tokens_max = 1 << 16;
  options.step_budget_ns = 10'000'000'000;
  options.replay = {.window = 128, .num_layers = 40, .num_encoder_layers = 21};
  options.profile = {.a = 4e6, .b = 12e3, .d = 0.01, .e = 0.005, .r = 1.5e6, .k = 2e4, .v = 4e4};
  Scheduler scheduler(options, cache);
  Rng rng(1);
  for (int64_t i = 0; i < num_requests; ++i) {
    SequenceRequest request{.id = static_cast<SequenceId>(i),
                            .prompt = std::vector<TokenId>(kPromptTokens, static_cast<TokenId>(i)),
                            .max_output_tokens = 7000};
    CHECK(scheduler.submit(std::move(request), 0).ok());
  }
  const SystemClock clock;
  Batch batch;
  std::vector<SequenceDelta> deltas;
  int64_t num_steps = 0, total_ns = 0, num_rows = 0;
  for (int step = 0; step < 1200; ++step) {
    const int64_t start = clock.monotonic_ns();
    scheduler.plan(start, batch);
    const int64_t planned = clock.monotonic_ns();
    const StepOutput output = answer(batch, rng);
    const int64_t answered = clock.monotonic_ns();
    scheduler.commit(output, answered, deltas);
    if (step < 200) continue;
    total_ns += planned - start + clock.monotonic_ns() - answered;
    num_rows += batch.num_rows();
    ++num_steps;
  }
  const double us = static_cast<double>(total_ns) / static_cast<double>(num_steps) / 1e3;
  report.add({.name = fmt::format("plan + commit, {} requests", num_requests),
              .value = us,
              .unit = "us/step",
              .note = fmt::format("goal {} us; {:.0f} rows a step", num_requests == 64 ? 40 : 100,
                                  static_cast<double>(num_rows) / static_cast<double>(num_steps))});
}

}  // namespace

Status bench_step(const BenchOptions&, BenchReport& report) {
  run_case(64, report);
  run_case(512, report);
  return {};
}

}  // namespace deepinfer
