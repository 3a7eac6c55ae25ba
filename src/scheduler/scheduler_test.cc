// SPDX-License-Identifier: MIT
// The scheduler alone, in virtual time, against an engine made of arithmetic (schedule_driver.h).
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <map>

#include "scheduler/schedule_driver.h"

namespace deepinfer {
namespace {

SchedulerOptions options(int64_t num_lanes = 8) {
  SchedulerOptions o;
  o.num_lanes = num_lanes;
  o.rows_max = 512;
  o.num_drafts = kNumDrafts;
  o.chunk_rows_min = 16;
  o.step_budget_ns = 5'000'000;
  o.replay = {.window = 16, .num_layers = 4, .num_encoder_layers = 2};
  o.profile = {.a = 1e5, .b = 2e4, .d = 1, .e = 1, .k = 1e3, .v = 2e4};
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
  StepOutput output = driver.engine.run(batch, driver.known, driver.requests);
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

// The best priority arrives all the time, and the worst gets its turn all the same (bound: admission.h).
TEST(Scheduler, WaitingRaisesPrioritySoThatNobodyStarves) {
  PrefixCache cache(512, 0);
  SchedulerOptions o = options(1);
  o.priority_wait_ns = 20'000'000;
  Scheduler scheduler(o, cache);
  Driver driver{scheduler, FakeEngine(1)};
  Rng rng(3);
  SequenceRequest patient = request(1, 40, 1, rng);
  patient.priority = 5;
  ASSERT_TRUE(driver.submit(request(2, 16, 3, rng)).ok());
  ASSERT_TRUE(driver.submit(patient).ok());
  uint64_t id = 3;
  for (; !driver.finished.contains(patient.id); ++id) {
    ASSERT_TRUE(driver.submit(request(id, 16, 1, rng)).ok());  // priority 0, one each millisecond
    driver.step(cache);
    // (5 - 0 + 1) waits, and then what had arrived by then and still stands before it: one step each.
    ASSERT_LT(driver.now_ns, 6 * o.priority_wait_ns + 140'000'000);
  }
  EXPECT_GT(driver.now_ns, 4 * o.priority_wait_ns) << "the newcomers did come first for long";
}

// Steps last as long as the curve says; lanes are few, so most of the time is waiting for one. Those who were let in
// get their first token about when that was predicted, and those who were refused would have waited longer.
TEST(Scheduler, PredictedTimesToFirstTokenComeTrueAndLateOnesAreRefused) {
  constexpr int64_t kLimitNs = 100'000'000;
  PrefixCache cache(2048, 0);
  SchedulerOptions o = options(4);
  o.admission = "fcfs";  // nobody is overtaken: what waits before a request is what it waits for
  Scheduler scheduler(o, cache);
  Driver driver{.scheduler = scheduler, .engine = FakeEngine(1), .num_ahead = 1, .takes_predicted_time = true};
  Rng rng(8);
  std::vector<SequenceId> taken;
  int64_t num_refused = 0, next_ns = 0;
  for (uint64_t id = 1; id <= 400 || !scheduler.is_idle();) {
    for (; id <= 400 && driver.now_ns >= next_ns; ++id) {
      SequenceRequest r =
          request(id, 20 + static_cast<int64_t>(rng.below(400)), 40 + static_cast<int64_t>(rng.below(40)), rng);
      r.draft = false;
      if (id > 50) r.ttft_ns_max = kLimitNs;  // the first ones teach it how long answers are
      if (driver.submit(r).ok()) taken.push_back(r.id);
      else ++num_refused;
      next_ns += static_cast<int64_t>(rng.below(10'000'000));
    }
    if (!driver.step(cache)) driver.now_ns = std::max(driver.now_ns, next_ns);
  }
  int64_t num_late = 0, num_limited = 0;
  for (const SequenceId id : taken) {
    const SequenceRecord record = *scheduler.take_record(id);
    if (index(id) <= 50) continue;
    ++num_limited;
    num_late += record.first_token_ns - record.arrival_ns > kLimitNs * 3 / 2;
  }
  EXPECT_GT(num_refused, 20);
  EXPECT_GT(num_limited, 100);
  EXPECT_LT(num_late, num_limited / 20) << "more than 5 % of those let in came 50 % too late";
}

namespace {

// What random schedules did.
struct Exercised {
  int64_t num_preemptions = 0, num_hit_tokens = 0, num_accepted = 0, num_loaded = 0, num_saved = 0, num_shared = 0;
  int64_t num_wasted = 0, num_steps = 0, num_tail_hits = 0;
  void add(const SequenceRecord& r) {
    num_preemptions += r.num_preemptions;
    num_hit_tokens += r.num_cached_tokens;
    num_accepted += r.num_accepted;
    num_loaded += r.num_loaded_blocks;
    num_saved += r.num_offloaded_bytes;
    num_shared += r.num_shared_tokens;
  }
};

class RandomSchedule {
 public:
  explicit RandomSchedule(uint64_t seed)
      : rng_(seed),
        cache_(7 + static_cast<int64_t>(rng_.below(10)), static_cast<int64_t>(rng_.below(3) * 20),
               static_cast<int64_t>(rng_.below(3)) * 4000),
        scheduler_(random_options(rng_), cache_),
        driver_{scheduler_, FakeEngine(seed), static_cast<int64_t>(seed % 3)},
        shared_(request(0, 500, 1, rng_).prompt) {
    driver_.num_keeps = static_cast<int64_t>(rng_.below(3));
    driver_.load_steps = 1 + static_cast<int64_t>(rng_.below(4));
  }

  void run() {
    for (int step = 0; step < 400 || !scheduler_.is_idle(); ++step) {
      ASSERT_LT(step, 20000);
      if (step < 400 && rng_.below(8) == 0) submit_some();
      if (!submitted_.empty() && rng_.below(60) == 0)
        scheduler_.cancel(static_cast<SequenceId>(1 + rng_.below(next_id_)));
      driver_.step(cache_);
      scheduler_.check_invariants();
      ++num_steps_;
    }
  }

  void check(Exercised& exercised) {
    for (const auto& [id, r] : submitted_) {
      exercised.add(*scheduler_.take_record(id));
      const std::vector<TokenId> right = right_output(r);
      const std::vector<TokenId>& got = driver_.outputs[id];
      ASSERT_TRUE(driver_.finished.contains(id));
      if (driver_.finished[id] == SequenceEnd::kCancelled) {
        ASSERT_TRUE(std::equal(got.begin(), got.end(), right.begin()));
      } else {
        ASSERT_EQ(got, right) << "id " << index(id);
      }
    }
    exercised.num_wasted += scheduler_.num_wasted_rows();
    exercised.num_steps += num_steps_;
    driver_.move_states();
    driver_.land_copies(cache_);
    ASSERT_EQ(cache_.pool().num_available(), cache_.pool().num_blocks());
    ASSERT_EQ(driver_.engine.num_states(), 0u);
    exercised.num_tail_hits += cache_.tails().stats().num_hits;
  }

 private:
  static SchedulerOptions random_options(Rng& rng) {
    SchedulerOptions o = options(1 + static_cast<int64_t>(rng.below(8)));
    o.step_budget_ns = static_cast<int64_t>(200'000 + rng.below(10'000'000));
    o.snapshots = {.preempt_by = static_cast<PreemptBy>(rng.below(3)),
                   .bytes_max = static_cast<int64_t>(rng.below(3)) * 400,
                   .record_bytes = 50,
                   .block_bytes = 10,
                   .bytes_per_ns = 1e-4};
    return o;
  }

  void submit_some() {
    SequenceRequest r =
        request(next_id_++, 1 + static_cast<int64_t>(rng_.below(300)), 1 + static_cast<int64_t>(rng_.below(200)), rng_);
    if (rng_.below(2))
      r.prompt.insert(r.prompt.begin(), shared_.begin(), shared_.begin() + static_cast<int64_t>(rng_.below(300)));
    r.priority = static_cast<int32_t>(rng_.below(2));
    r.draft = rng_.below(4) != 0;
    r.use_prefix_cache = rng_.below(4) != 0;
    if (rng_.below(3) == 0) r.stop_ids = {static_cast<TokenId>(rng_.below(997))};
    submit(r);
    const SequenceId first = r.id;
    for (uint64_t more = rng_.below(5) == 0 ? rng_.below(4) : 0; more-- > 0;) {  // choices of one request
      r.id = static_cast<SequenceId>(next_id_++);
      r.prompt_of = first;
      submit(r);
    }
  }
  void submit(const SequenceRequest& r) {
    if (driver_.submit(r).ok()) submitted_.emplace(r.id, r);
  }

  Rng rng_;
  PrefixCache cache_;
  Scheduler scheduler_;
  Driver driver_;
  std::vector<TokenId> shared_;
  std::map<SequenceId, SequenceRequest> submitted_;
  uint64_t next_id_ = 1;
  int64_t num_steps_ = 0;
};

}  // namespace

// Every request gets its right tokens under any load, pool size, cancellation, prefix hit, shared prompt and
// preemption, with up to two steps under way; nothing leaks and nothing is freed under a step.
TEST(Scheduler, RandomSchedulesGiveTheRightTokensAndLoseNothing) {
  Exercised exercised;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomSchedule schedule(seed);
    schedule.run();
    if (!HasFatalFailure()) schedule.check(exercised);
    if (HasFatalFailure()) return;
  }
  // The schedules did exercise what they are for.
  EXPECT_GT(exercised.num_steps, 100'000);
  EXPECT_GT(exercised.num_preemptions, 100);
  EXPECT_GT(exercised.num_hit_tokens, 10000);
  EXPECT_GT(exercised.num_accepted, 1000);
  EXPECT_GT(exercised.num_loaded, 10);
  EXPECT_GT(exercised.num_wasted, 0);  // of cancelled ones: a stop that the engine sees wastes nothing
  EXPECT_GT(exercised.num_saved, 1000);
  EXPECT_GT(exercised.num_shared, 10000);
  EXPECT_GT(exercised.num_tail_hits, 10);
}

// Four choices of one prompt: its tokens run once, then one row for each of the others.
TEST(Scheduler, ChoicesShareTheirPrompt) {
  for (const int64_t num_ahead : {0, 1}) {
    PrefixCache cache(64, 0);
    Scheduler scheduler(options(), cache);
    Driver driver{scheduler, FakeEngine(1), num_ahead};
    Rng rng(1);
    SequenceRequest r = request(1, 400, 30, rng);
    r.use_prefix_cache = false;  // it is the fork that shares, not the cache
    ASSERT_TRUE(driver.submit(r).ok());
    for (uint64_t id = 2; id <= 4; ++id) {
      SequenceRequest choice = r;
      choice.id = static_cast<SequenceId>(id);
      choice.prompt_of = r.id;
      ASSERT_TRUE(driver.submit(choice).ok());
    }
    int64_t most_blocks = 0;
    while (driver.step(cache)) {
      scheduler.check_invariants();
      most_blocks = std::max(most_blocks, cache.pool().num_blocks() - cache.pool().num_available());
    }
    EXPECT_EQ(driver.engine.num_prompt_rows, 400 + 3);
    EXPECT_EQ(most_blocks, 3 + 4);  // three full blocks of the prompt for all, the fourth one for each
    for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(driver.outputs[static_cast<SequenceId>(id)], right_output(r));
  }
}

// By cost: a short state is recomputed, a long one is worth its copies.
TEST(Scheduler, PreemptsByTheCheaperWay) {
  const SnapshotOptions options{
      .preempt_by = PreemptBy::kCost, .bytes_max = 1000, .record_bytes = 0, .block_bytes = 0, .bytes_per_ns = 0.5};
  EXPECT_EQ(snapshot_ns(options, 100), 400);  // there and back
  EXPECT_TRUE(is_worth_a_snapshot(options, 100, 1000, 400));
  EXPECT_FALSE(is_worth_a_snapshot(options, 100, 1000, 399));
  EXPECT_FALSE(is_worth_a_snapshot(options, 100, 99, 1e9));
  SnapshotOptions always = options, never = options;
  always.preempt_by = PreemptBy::kSnapshot;
  never.preempt_by = PreemptBy::kRecompute;
  EXPECT_TRUE(is_worth_a_snapshot(always, 100, 1000, 0));
  EXPECT_FALSE(is_worth_a_snapshot(never, 100, 1000, 1e9));
}

// A stop is seen one step late by the scheduler, but by the engine at once: no row of the next step is wasted on it.
TEST(Scheduler, StopsAndLengthsWasteNoRowOfTheNextStep) {
  PrefixCache cache(64, 0);
  Scheduler scheduler(options(), cache);
  Driver driver{scheduler, FakeEngine(1), 1};
  Rng rng(3);
  for (uint64_t id = 1; id <= 6; ++id) {
    SequenceRequest r = request(id, 20, 60, rng);
    const std::vector<TokenId> free_run = right_output(r);
    if (id % 2) r.stop_ids = {free_run[10 + 5 * id]};
    ASSERT_TRUE(driver.submit(r).ok());
  }
  while (driver.step(cache)) {}
  for (const auto& [id, r] : driver.requests) EXPECT_EQ(driver.outputs[id], right_output(r));
  EXPECT_EQ(scheduler.num_wasted_rows(), 0);
}

// Cancelled at each of the moments that a pipelined step has: before and after plan, and with one or two steps under
// way.
TEST(Scheduler, CancelledAtAnyMomentNothingIsFreedUnderAStep) {
  for (const int64_t num_ahead : {1, 2})
    for (int cancel_step = 0; cancel_step < 12; ++cancel_step) {
      PrefixCache cache(16, 0);
      Scheduler scheduler(options(), cache);
      Driver driver{scheduler, FakeEngine(1), num_ahead};
      Rng rng(3);
      for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(driver.submit(request(id, 60, 300, rng)).ok());
      for (int step = 0; step < 400 && driver.step(cache); ++step) {
        if (step != cancel_step) continue;
        scheduler.cancel(static_cast<SequenceId>(2));
        scheduler.check_invariants();
        driver.check_blocks(cache);
      }
      EXPECT_EQ(driver.finished[static_cast<SequenceId>(2)], SequenceEnd::kCancelled);
      EXPECT_EQ(driver.outputs[static_cast<SequenceId>(1)].size(), 300u);
      EXPECT_EQ(cache.pool().num_available(), 16);
    }
}

}  // namespace deepinfer
