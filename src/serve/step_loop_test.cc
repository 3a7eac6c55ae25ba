// SPDX-License-Identifier: MIT
// The step loop on golden model A: what it gives does not depend on whether steps are planned while others run, one
// sequence's trouble is its own, and a step that hangs is ended with its place.
#include "serve/step_loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <cstring>
#include <limits>

#include "serve/step_loop_runs.h"

namespace deepinfer {
namespace {

// One of many kinds: greedy and sampled, cut, penalised, with logprobs, short and long, ending by itself or not.
LoopRequest varied_request(uint64_t seed) {
  Rng rng(seed);
  const bool grows = seed % 2 == 0;  // past the end of its block, so that a small pool preempts
  LoopRequest request = loop_request(seed, grows ? 118 : 1 + static_cast<int64_t>(rng.below(180)),
                                     grows ? 24 : 1 + static_cast<int64_t>(rng.below(40)));
  SamplingParams& p = request.sampling;
  p.temperature = rng.below(3) == 0 ? 0.0f : 0.3f + rng.uniform();
  if (rng.below(3) == 0) p.top_p = 0.8f;
  if (rng.below(4) == 0) p.top_k = 20;
  if (rng.below(4) == 0) p.frequency_penalty = 0.5f;
  if (rng.below(4) == 0) p.bad_words = {{static_cast<TokenId>(rng.below(500))}};
  if (rng.below(2) == 0) p.top_logprobs = 3;
  if (rng.below(3) == 0) p.logit_bias = {{static_cast<TokenId>(rng.below(500)), 20.0f}};  // drafts stand
  if (!grows && rng.below(3) == 0)
    for (int i = 0; i < 20; ++i) request.sequence.stop_ids.push_back(static_cast<TokenId>(rng.below(500)));
  request.sequence.draft = rng.below(4) != 0;
  request.sequence.replay = ReplayMode::kExact;
  return request;
}

bool equal_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

void expect_same(const LoopOutput& a, const LoopOutput& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.finished, b.finished);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    EXPECT_TRUE(equal_bits(a.logprobs[i].logprob, b.logprobs[i].logprob));
    EXPECT_EQ(a.logprobs[i].likeliest, b.logprobs[i].likeliest);
  }
}

EngineOptions threaded() {
  EngineOptions options = loop_engine_options();
  options.has_thread = true;
  return options;
}
StepLoopOptions synchronous() {
  StepLoopOptions options = loop_test_options();
  options.pipelined = false;
  return options;
}

TEST(StepLoop, PipelinedAndSynchronousGiveTheSameTokensAndLogprobs) {
  constexpr uint64_t kRequests = 16;
  std::vector<LoopOutput> alone;
  {
    LoopRun run(synchronous());
    for (uint64_t seed = 1; seed <= kRequests; ++seed) alone.push_back(run.run(varied_request(seed)));
  }
  StepLoopOptions small = loop_test_options();  // preempts
  EngineOptions small_engine = threaded();
  small_engine.blocks_max = 3;
  const std::pair<StepLoopOptions, EngineOptions> ways[] = {{loop_test_options(), loop_engine_options()},
                                                            {loop_test_options(), threaded()},
                                                            {synchronous(), threaded()},
                                                            {small, small_engine}};
  for (size_t way = 0; way < std::size(ways); ++way) {
    SCOPED_TRACE("way " + std::to_string(way));
    LoopRun run(ways[way].first, ways[way].second);
    std::vector<SequenceId> ids;
    int64_t num_accepted = 0, num_preemptions = 0;
    for (uint64_t seed = 1; seed <= kRequests; ++seed) {
      ids.push_back(run.submit(varied_request(seed)));
      for (uint64_t steps = seed % 4; steps > 0; --steps) ASSERT_TRUE(run.loop->run_step().ok());
    }
    run.finish();
    for (size_t i = 0; i < ids.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i + 1));
      expect_same(run.output(ids[i]), alone[i]);
      num_accepted += run.output(ids[i]).record.num_accepted;
      num_preemptions += run.output(ids[i]).record.num_preemptions;
    }
    EXPECT_GT(num_accepted, 10);
    EXPECT_TRUE(way != 3 || num_preemptions > 0);
    EXPECT_EQ(run.loop->snapshot().num_wasted_rows, 0) << "stops and lengths are seen by the engine";
  }
}

TEST(StepLoop, CancelledWhileAStepIsUnderWayShowsNothingMoreAndHurtsNobody) {
  LoopRun alone(synchronous());
  const LoopOutput right = alone.run(loop_request(5, 30, 40));
  for (int steps = 1; steps < 8; ++steps) {
    LoopRun run(loop_test_options(), threaded());
    const SequenceId other = run.submit(loop_request(5, 30, 40)), doomed = run.submit(loop_request(6, 150, 400));
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(run.loop->run_step().ok());
    const size_t seen = run.output(doomed).tokens.size();
    run.loop->cancel(doomed);
    const SequenceId next = run.submit(loop_request(7, 20, 10));  // takes its lane
    run.finish();
    EXPECT_EQ(run.output(doomed).finished, SequenceEnd::kCancelled);
    EXPECT_EQ(run.output(doomed).tokens.size(), seen) << "a step that was under way is not told any more";
    expect_same(run.output(other), right);
    EXPECT_EQ(run.output(next).tokens.size(), 10u);
  }
}

TEST(StepLoop, ANotANumberEndsThatRequestAlone) {
  const int64_t hidden = golden_model().weights->config().hidden;
  LoopRun alone(synchronous());
  const LoopOutput right = alone.run(loop_request(3, 25, 30));
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    LoopRun run(loop_test_options(), threaded());
    LoopRequest request = loop_request(2, 25, 30);
    auto rows = std::make_shared<Buffer<bf16>>(2 * hidden);
    for (int64_t i = 0; i < 2 * hidden; ++i) (*rows)[i] = to_bf16(poison);
    request.images.push_back({{23, 25}, rows});  // its last rows: the caches would round the poison away
    request.sequence.use_prefix_cache = false;
    const SequenceId poisoned = run.submit(std::move(request)), other = run.submit(loop_request(3, 25, 30));
    run.finish();
    EXPECT_EQ(run.output(poisoned).finished, SequenceEnd::kNotFinite);
    EXPECT_EQ(run.output(poisoned).cause.message(), "a logit at output position 0 is NaN or infinite");
    EXPECT_TRUE(run.output(poisoned).tokens.empty());
    expect_same(run.output(other), right);
  }
}

TEST(StepLoop, AStepThatTakesTooLongIsStoppedWithItsPlaceAndOthersGoOn) {
  for (const bool has_thread : {false, true}) {
    EngineOptions options = loop_engine_options();
    options.has_thread = has_thread;
    ManualClock clock;  // nothing takes long but what says so
    options.clock = &clock;
    options.step_ns_max = 60'000'000'000;
    bool has_stalled = false;
    int64_t num_steps = 0;
    options.on_layer = [&](uint64_t, int layer) {
      num_steps += layer == 0;
      if (num_steps < 4 || layer != 2 || has_stalled) return;
      has_stalled = true;
      clock.advance_ns(61'000'000'000);
    };
    LoopRun run(loop_test_options(), options);
    const SequenceId stopped = run.submit(loop_request(1, 20, 60));
    for (int i = 0; i < 20 && !run.output(stopped).finished; ++i) ASSERT_TRUE(run.loop->run_step().ok());
    EXPECT_EQ(run.output(stopped).finished, SequenceEnd::kFailed);
    EXPECT_NE(run.output(stopped).cause.message().find("layer 2 of"), std::string::npos)
        << run.output(stopped).cause.message();
    const LoopOutput later = run.run(loop_request(2, 20, 10));
    EXPECT_EQ(later.finished, SequenceEnd::kLength);
    LoopRun fresh(synchronous());
    expect_same(later, fresh.run(loop_request(2, 20, 10)));
  }
}

TEST(StepLoop, AStepThatHangsFailsTheLoopAndSaysWhere) {
  struct Gate {  // the engine's thread may outlive the test
    std::mutex mutex;
    std::condition_variable opened;
    bool is_open = false;
  };
  static Gate gate;
  EngineOptions options = threaded();
  options.step_ns_max = 100'000'000;
  options.on_layer = [](uint64_t, int layer) {
    if (layer != 1) return;
    std::unique_lock lock(gate.mutex);
    gate.opened.wait(lock, [] { return gate.is_open; });
  };
  LoopRun run(loop_test_options(), options);
  run.submit(loop_request(1, 20, 10));
  Result<bool> ran = true;
  while (ran.ok()) ran = run.loop->run_step();
  EXPECT_EQ(ran.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(ran.status().message().find("hangs in step"), std::string::npos) << ran.status().message();
  EXPECT_NE(ran.status().message().find("layer 1 of"), std::string::npos) << ran.status().message();
  const std::lock_guard lock(gate.mutex);
  gate.is_open = true;
  gate.opened.notify_all();
}

// Model A's draft head is random: its drafts are never right.
TEST(StepLoop, ADraftHeadThatIsNeverRightIsSwitchedOff) {
  LoopRun run;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    LoopRequest request = loop_request(seed, 20, 120);
    request.sampling.temperature = 1;
    run.submit(std::move(request));
  }
  run.finish();
  const StepLoopSnapshot now = run.loop->snapshot();
  EXPECT_EQ(now.num_draft_pauses, 1);
  EXPECT_LT(now.num_verified_drafts, now.num_output_tokens) << "most steps did not draft";
}

TEST(StepLoop, RunsOnItsOwnThreadAndStopsWithStepsUnderWay) {
  LoopRun run(loop_test_options(), threaded());
  std::atomic<int> num_finished{0};
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LoopRequest request = loop_request(seed, 40, seed % 3 ? 12 : 500);
    ASSERT_TRUE(
        run.loop
            ->submit(std::move(request), [&](const LoopUpdate& update) { num_finished += update.finished.has_value(); })
            .ok());
    if (seed == 4) run.loop->start();
  }
  while (num_finished < 4) std::this_thread::yield();
  run.loop->stop();
  EXPECT_EQ(num_finished, 12);
  EXPECT_FALSE(run.loop->submit(loop_request(1, 5, 5), [](const LoopUpdate&) {}).ok());
}

}  // namespace
}  // namespace deepinfer
