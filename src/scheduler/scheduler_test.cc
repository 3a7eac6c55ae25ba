// SPDX-License-Identifier: MIT
// The scheduler alone, in virtual time, against an engine made of arithmetic: the "model" continues a sequence by a
// hash of its tokens, so the right output of every request is known whatever the schedule was.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <map>

#include "base/philox.h"

namespace deepinfer {
namespace {

constexpr int64_t kNumDrafts = 4;

TokenId next_token(std::span<const TokenId> tokens) {
  uint64_t h = 1469598103934665603ull;
  for (const TokenId t : tokens) h = (h ^ static_cast<uint64_t>(t)) * 1099511628211ull;
  return static_cast<TokenId>(h >> 33) % 997;
}

std::vector<TokenId> right_output(const SequenceRequest& request) {
  std::vector<TokenId> tokens = request.prompt;
  for (int64_t i = 0; i < request.max_output_tokens; ++i) {
    tokens.push_back(next_token(tokens));
    if (!request.stop_ids.empty() && tokens.back() == request.stop_ids[0]) break;
  }
  return {tokens.begin() + static_cast<int64_t>(request.prompt.size()), tokens.end()};
}

// Computes a batch. It keeps each lane's tokens as a device would keep state: rows must continue what the lane holds,
// or start a new sequence at a position whose blocks are there.
class FakeEngine {
 public:
  explicit FakeEngine(uint64_t seed) : rng_(seed) {}

  StepOutput run(const Batch& batch, const std::map<SequenceId, std::vector<TokenId>>& prompts) {
    StepOutput output{.step = batch.step};
    for (const BatchSequence& rows : batch.sequences) {
      CHECK(rows.position_begin + rows.rows.size() <= rows.blocks->capacity_tokens());
      std::vector<TokenId>& lane = lanes_[rows.lane];
      if (owner_[rows.lane] != rows.id || static_cast<int64_t>(lane.size()) < rows.position_begin) {
        const auto& prompt = prompts.at(rows.id);
        CHECK(rows.position_begin <= static_cast<int64_t>(prompt.size()));
        lane.assign(prompt.begin(), prompt.begin() + rows.position_begin);
        owner_[rows.lane] = rows.id;
      }
      lane.resize(static_cast<size_t>(rows.position_begin));
      const auto first = batch.tokens.begin() + rows.rows.begin;
      output.sequences.push_back(run_sequence(rows, {first, first + rows.rows.size()}, lane));
    }
    return output;
  }

 private:
  SequenceOutput run_sequence(const BatchSequence& rows, std::vector<TokenId> tokens, std::vector<TokenId>& lane) {
    SequenceOutput out{.id = rows.id, .lane = rows.lane};
    const size_t num_drafts = rows.num_logits_rows > 0 ? static_cast<size_t>(rows.num_logits_rows - 1) : 0;
    lane.insert(lane.end(), tokens.begin(), tokens.end() - static_cast<int64_t>(num_drafts));
    if (!rows.sample || rows.num_logits_rows == 0) return out;
    for (size_t i = 0; i < num_drafts; ++i) {
      const TokenId draft = tokens[tokens.size() - num_drafts + i];
      if (next_token(lane) != draft) break;
      out.tokens.push_back(draft);
      lane.push_back(draft);
      ++out.num_accepted;
    }
    out.tokens.push_back(next_token(lane));
    if (rows.draft) propose(lane, out);
    return out;
  }

  void propose(std::vector<TokenId> tokens, SequenceOutput& out) {
    tokens.push_back(out.tokens.back());
    for (int64_t i = 0; i < kNumDrafts; ++i) {
      const bool good = rng_.uniform() < 0.7f;
      out.drafts.push_back(good ? next_token(tokens) : 998);
      out.confidences.push_back(good ? 1.5f : 0.2f);
      tokens.push_back(out.drafts.back());
    }
  }

  Rng rng_;
  std::map<int32_t, std::vector<TokenId>> lanes_;
  std::map<int32_t, SequenceId> owner_;
};

SchedulerOptions options(int64_t num_lanes = 8) {
  SchedulerOptions o;
  o.num_lanes = num_lanes;
  o.rows_max = 512;
  o.num_drafts = kNumDrafts;
  o.chunk_rows_min = 16;
  o.step_budget_ns = 5'000'000;
  o.replay = {.window = 16, .num_layers = 4, .num_encoder_layers = 2};
  o.profile = {.a = 1e5, .b = 2e4, .d = 1, .e = 1, .r = 1e5, .k = 1e3, .v = 2e4};
  return o;
}

SequenceRequest request(uint64_t id, int64_t num_prompt, int64_t num_output, Rng& rng) {
  SequenceRequest r;
  r.id = static_cast<SequenceId>(id);
  for (int64_t i = 0; i < num_prompt; ++i) r.prompt.push_back(static_cast<TokenId>(rng.below(997)));
  r.max_output_tokens = num_output;
  r.replay = ReplayMode::kExact;
  return r;
}

// Drives a scheduler to the end of its requests in virtual time and keeps all outputs.
struct Driver {
  Scheduler& scheduler;
  FakeEngine engine;
  int64_t now_ns = 0;
  std::map<SequenceId, std::vector<TokenId>> prompts, outputs;
  std::map<SequenceId, SequenceEnd> finished;

  Status submit(const SequenceRequest& r) {
    prompts[r.id] = r.prompt;
    return scheduler.submit(r, now_ns);
  }
  void deliver(const std::vector<SequenceDelta>& deltas) {
    for (const SequenceDelta& delta : deltas) {
      auto& out = outputs[delta.id];
      out.insert(out.end(), delta.tokens.begin(), delta.tokens.end());
      auto& known = prompts[delta.id];
      known.insert(known.end(), delta.tokens.begin(), delta.tokens.end());
      if (delta.finished) {
        CHECK(!finished.contains(delta.id));
        finished[delta.id] = *delta.finished;
      }
    }
  }
  // One step; false when there was nothing to run.
  bool step(PrefixCache& cache) {
    Batch batch;
    scheduler.plan(now_ns, batch);
    for (const BlockCopy& copy : scheduler.take_copies()) cache.finish_copy(copy);
    deliver(scheduler.take_finished());
    if (batch.empty()) return false;
    const StepOutput output = engine.run(batch, prompts);
    now_ns += 1'000'000;
    std::vector<SequenceDelta> deltas;
    scheduler.commit(output, now_ns, deltas);
    deliver(deltas);
    return true;
  }
};

}  // namespace

TEST(Scheduler, RefusesWhatCanNeverRunAndSaysBusyWhenFull) {
  PrefixCache cache(8, 0);
  SchedulerOptions o = options();
  o.queue_max = 2;
  Scheduler scheduler(o, cache);
  Rng rng(1);
  EXPECT_EQ(scheduler.submit(request(1, 0, 5, rng), 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler.submit(request(1, 5, 0, rng), 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler.submit(request(1, 1020, 5, rng), 0).code(), StatusCode::kInvalidArgument);  // 9 blocks of 8
  EXPECT_TRUE(scheduler.submit(request(1, 10, 5, rng), 0).ok());
  EXPECT_EQ(scheduler.submit(request(1, 10, 5, rng), 0).code(), StatusCode::kInvalidArgument);  // same id
  EXPECT_TRUE(scheduler.submit(request(2, 10, 5, rng), 0).ok());
  EXPECT_EQ(scheduler.submit(request(3, 10, 5, rng), 0).code(), StatusCode::kResourceExhausted);
}

TEST(Scheduler, RefusesEarlyWhenTheFirstTokenWouldComeTooLate) {
  PrefixCache cache(64, 0);
  Scheduler scheduler(options(), cache);
  Rng rng(1);
  SequenceRequest r = request(1, 4000, 5, rng);
  r.ttft_ns_max = 1'000'000;
  EXPECT_EQ(scheduler.submit(r, 0).code(), StatusCode::kResourceExhausted);
  r.ttft_ns_max = 10'000'000'000;
  EXPECT_TRUE(scheduler.submit(r, 0).ok());
}

TEST(Scheduler, NewPromptsShareStepsWithDecodeRows) {
  PrefixCache cache(64, 0);
  Scheduler scheduler(options(), cache);
  Driver driver{scheduler, FakeEngine(1)};
  Rng rng(1);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(driver.submit(request(id, 20, 500, rng)).ok());
  for (int i = 0; i < 10; ++i) driver.step(cache);
  ASSERT_TRUE(driver.submit(request(9, 16, 3, rng)).ok());
  driver.step(cache);
  EXPECT_EQ(driver.outputs[static_cast<SequenceId>(9)].size(), 1u);  // its first token came with the very next step
}

TEST(Scheduler, StopsInsideAnAcceptedRunAndShowsNothingAfterIt) {
  PrefixCache cache(64, 0);
  Scheduler scheduler(options(), cache);
  Driver driver{scheduler, FakeEngine(1)};
  Rng rng(3);
  SequenceRequest r = request(1, 20, 400, rng);
  const std::vector<TokenId> free_run = right_output(r);
  r.stop_ids = {free_run[37]};
  ASSERT_TRUE(driver.submit(r).ok());
  while (driver.step(cache)) {}
  EXPECT_EQ(driver.outputs[r.id], right_output(r));
  EXPECT_EQ(driver.finished[r.id], SequenceEnd::kStop);
}

TEST(Scheduler, NonFiniteLogitsEndThatRequestAlone) {
  PrefixCache cache(64, 0);
  Scheduler scheduler(options(), cache);
  Driver driver{scheduler, FakeEngine(1)};
  Rng rng(3);
  for (uint64_t id = 1; id <= 2; ++id) ASSERT_TRUE(driver.submit(request(id, 20, 40, rng)).ok());
  Batch batch;
  scheduler.plan(0, batch);
  StepOutput output = driver.engine.run(batch, driver.prompts);
  output.sequences[0].is_finite = false;
  std::vector<SequenceDelta> deltas;
  scheduler.commit(output, 1, deltas);
  driver.deliver(deltas);
  while (driver.step(cache)) {}
  EXPECT_EQ(driver.finished[static_cast<SequenceId>(1)], SequenceEnd::kNotFinite);
  EXPECT_EQ(driver.outputs[static_cast<SequenceId>(2)].size(), 40u);
}

TEST(Scheduler, DeadlinesEndWaitingAndRunningSequences) {
  PrefixCache cache(64, 0);
  Scheduler scheduler(options(1), cache);
  Driver driver{scheduler, FakeEngine(1)};
  Rng rng(3);
  for (uint64_t id = 1; id <= 2; ++id) {
    SequenceRequest r = request(id, 20, 1000, rng);
    r.deadline_ns = 20'000'000;
    ASSERT_TRUE(driver.submit(r).ok());
  }
  while (driver.step(cache)) {}
  EXPECT_EQ(driver.finished[static_cast<SequenceId>(1)], SequenceEnd::kDeadline);
  EXPECT_EQ(driver.finished[static_cast<SequenceId>(2)], SequenceEnd::kDeadline);
  EXPECT_TRUE(scheduler.is_idle());
  EXPECT_EQ(cache.pool().num_available(), 64);
}

// Admission bound (admission.h): a long prompt is overtaken by later short ones for at most remaining / aging of
// waiting.
TEST(Scheduler, AgingBoundsHowLongALongPromptIsOvertaken) {
  PrefixCache cache(512, 0);
  SchedulerOptions o = options(1);
  o.aging = 0.5;
  Scheduler scheduler(o, cache);
  Driver driver{scheduler, FakeEngine(1)};
  Rng rng(3);
  SequenceRequest long_one = request(1, 2000, 1, rng);
  const double bound_ns = o.profile.chunk_ns({2000, 0}) / o.aging;
  ASSERT_TRUE(driver.submit(request(2, 16, 1, rng)).ok());
  ASSERT_TRUE(driver.submit(long_one).ok());
  for (uint64_t id = 3; !driver.finished.contains(long_one.id); ++id) {
    ASSERT_TRUE(driver.submit(request(id, 16, 1, rng)).ok());  // a newcomer each step, always shorter
    driver.step(cache);
    ASSERT_LT(driver.now_ns, static_cast<int64_t>(bound_ns) + 100'000'000);
  }
}

// Every request gets its right tokens under any load, pool size, cancellation, prefix hit and preemption; nothing
// leaks.
TEST(Scheduler, RandomSchedulesGiveTheRightTokensAndLoseNothing) {
  int64_t num_preemptions = 0, num_hit_tokens = 0, num_accepted = 0, num_loaded = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    const int64_t num_blocks = 7 + static_cast<int64_t>(rng.below(10));
    PrefixCache cache(num_blocks, static_cast<int64_t>(rng.below(3) * 20));
    SchedulerOptions o = options(1 + static_cast<int64_t>(rng.below(8)));
    o.step_budget_ns = static_cast<int64_t>(200'000 + rng.below(10'000'000));
    Scheduler scheduler(o, cache);
    Driver driver{scheduler, FakeEngine(seed)};
    std::map<SequenceId, SequenceRequest> submitted;
    std::vector<SequenceId> cancelled;
    uint64_t next_id = 1;
    std::vector<TokenId> shared = request(0, 500, 1, rng).prompt;
    for (int step = 0; step < 400 || !scheduler.is_idle(); ++step) {
      ASSERT_LT(step, 20000) << "seed " << seed;
      if (step < 400 && rng.below(8) == 0) {
        SequenceRequest r =
            request(next_id++, 1 + static_cast<int64_t>(rng.below(300)), 1 + static_cast<int64_t>(rng.below(200)), rng);
        if (rng.below(2))
          r.prompt.insert(r.prompt.begin(), shared.begin(), shared.begin() + static_cast<int64_t>(rng.below(300)));
        r.priority = static_cast<int32_t>(rng.below(2));
        r.draft = rng.below(4) != 0;
        r.use_prefix_cache = rng.below(4) != 0;
        if (driver.submit(r).ok()) submitted.emplace(r.id, r);
      }
      if (!submitted.empty() && rng.below(60) == 0) {
        const SequenceId id = static_cast<SequenceId>(1 + rng.below(next_id));
        if (scheduler.find(id)) cancelled.push_back(id);
        scheduler.cancel(id);
      }
      driver.step(cache);
      scheduler.check_invariants();
    }
    for (const auto& [id, r] : submitted) {
      const SequenceRecord record = *scheduler.take_record(id);
      num_preemptions += record.num_preemptions;
      num_hit_tokens += record.num_cached_tokens;
      num_accepted += record.num_accepted;
      num_loaded += record.num_loaded_blocks;
      const std::vector<TokenId> right = right_output(r);
      const std::vector<TokenId>& got = driver.outputs[id];
      ASSERT_TRUE(driver.finished.contains(id)) << "seed " << seed;
      if (driver.finished[id] == SequenceEnd::kCancelled) {
        ASSERT_TRUE(std::equal(got.begin(), got.end(), right.begin())) << "seed " << seed;
      } else {
        ASSERT_EQ(got, right) << "seed " << seed << " id " << index(id);
      }
    }
    ASSERT_EQ(cache.pool().num_available(), num_blocks) << "seed " << seed;
  }
  // The schedules did exercise what they are for.
  EXPECT_GT(num_preemptions, 100);
  EXPECT_GT(num_hit_tokens, 10000);
  EXPECT_GT(num_accepted, 1000);
  EXPECT_GT(num_loaded, 10);
}

}  // namespace deepinfer
