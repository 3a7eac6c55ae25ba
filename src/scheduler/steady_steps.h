// SPDX-License-Identifier: MIT
// Test and bench only: many sequences that decode and draft, step after step, with outputs made from chance instead of
// an engine. Nothing here allocates once it runs steadily.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

struct SteadySteps {
  static constexpr int64_t kDraftBlock = 5, kPromptTokens = 200;

  int64_t num_ahead = 0;  // steps under way while the next is planned
  PrefixCache cache;
  Scheduler scheduler;
  Rng rng{1};
  Batch batch;
  StepOutput outputs[2];
  std::vector<SequenceDelta> deltas;

  SteadySteps(int64_t num_sequences, int64_t ahead)
      : num_ahead(ahead), cache(num_sequences * 64, 0), scheduler(options(num_sequences), cache) {
    for (int64_t i = 0; i < num_sequences; ++i) {
      SequenceRequest request{.id = static_cast<SequenceId>(i),
                              .prompt = std::vector<TokenId>(kPromptTokens, static_cast<TokenId>(i)),
                              .max_output_tokens = 7000};
      CHECK(scheduler.submit(std::move(request), 0).ok());
    }
  }

  static SchedulerOptions options(int64_t num_sequences) {
    SchedulerOptions o;
    o.num_lanes = num_sequences;
    o.rows_max = num_sequences * (1 + kDraftBlock) + 512;
    o.num_drafts = kDraftBlock;
    o.rests_from_drafts = false;
    o.context_tokens_max = 1 << 16;
    o.step_budget_ns = 10'000'000'000;
    o.replay = {.window = 128, .num_layers = 40, .num_encoder_layers = 21};
    o.profile = {.a = 4e6, .b = 12e3, .d = 0.01, .e = 0.005, .k = 2e4, .v = 4e4};
    return o;
  }

  void plan(int64_t now_ns) { scheduler.plan(now_ns, batch); }
  // What an engine would say to the batch just planned, the `step`-th from 0 on.
  void answer(int64_t step) {
    StepOutput& output = outputs[step % 2];
    output.step = batch.step;
    output.sequences.resize(batch.sequences.size());
    int64_t budget = batch.verify_budget;
    for (size_t i = 0; i < batch.sequences.size(); ++i)
      answer_sequence(batch.sequences[i], budget, output.sequences[i]);
  }
  // Of the oldest step under way; false while fewer than `num_ahead` are.
  bool commit(int64_t step, int64_t now_ns) {
    if (step < num_ahead) return false;
    scheduler.commit(outputs[(step - num_ahead) % 2], now_ns, deltas);
    scheduler.add_step_time(scheduler.predicted_step_ns());
    return true;
  }

 private:
  void answer_sequence(const BatchSequence& rows, int64_t& budget, SequenceOutput& one) {
    one.id = rows.id;
    one.lane = rows.lane;
    one.tokens.clear();
    one.drafts.clear();
    one.confidences.clear();
    one.num_rows = rows.rows.size();
    if (!rows.sample) return;
    one.num_verified = rows.follows ? std::min(budget, rows.follow_drafts_max) : rows.num_logits_rows - 1;
    if (rows.follows) {
      budget -= one.num_verified;
      one.num_rows = 1 + one.num_verified;
    }
    one.num_accepted = static_cast<int64_t>(rng.below(static_cast<uint64_t>(one.num_verified + 1)));
    for (int64_t j = 0; j <= one.num_accepted; ++j) one.tokens.push_back(random_token());
    for (int64_t j = 0; j < kDraftBlock; ++j) {
      one.drafts.push_back(random_token());
      one.confidences.push_back(4 * rng.uniform() - 1);
    }
  }
  TokenId random_token() { return static_cast<TokenId>(rng.below(1000)); }
};

}  // namespace deepinfer
