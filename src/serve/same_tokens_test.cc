// SPDX-License-Identifier: MIT
// The same request gives the same tokens and, bit for bit, the same log probabilities, however it was served: alone or
// among others, in any order of arrival, cut into chunks of any size, with one or two threads, steps planned ahead or
// one after another, with drafts of any length or none, preempted and computed again or put away and brought back,
// behind a prefix hit in exact mode, through host memory, as one of several choices of a prompt. What is expected comes
// from the request run by itself: one lane, one thread, no drafts, no cache, plenty of blocks.
#include "serve/same_tokens.h"

namespace deepinfer {
namespace {

constexpr uint64_t kNumRequests = 64;
constexpr int64_t kSharedTokens = 130;  // a block and a little, so that beginnings are found again
constexpr int64_t kBlocksForOne = 3;    // the longest request with its drafts

// Request `number` of the suite; LoopRequests are made anew for every run.
LoopRequest suite_request(uint64_t number) {
  Rng rng(number, 17);
  LoopRequest request;
  SequenceRequest& s = request.sequence;
  request.sampling = random_sampling(rng);
  const bool grows = rng.below(4) == 0;  // to two blocks more than its first chunk needs: then others are preempted
  s.prompt = random_prompt(1000 + number, grows ? between(rng, 246, 255) : between(rng, 8, 60));
  if (!grows && rng.below(3) != 0) {
    const auto shared = random_prompt(rng.below(2), kSharedTokens);
    s.prompt.insert(s.prompt.begin(), shared.begin(), shared.end());
  }
  s.max_output_tokens = grows ? between(rng, 8, 16) : between(rng, 1, 10);
  s.stop_ids = request.sampling.stop_ids;
  if (!request.sampling.ignore_eos) s.stop_ids.push_back(1);
  // Fast replay behind a hit is another computation by design: such requests do without the cache here.
  s.replay = rng.below(3) == 0 ? ReplayMode::kFast : ReplayMode::kExact;
  s.use_prefix_cache = s.replay == ReplayMode::kExact;
  return request;
}

Schedule random_schedule(Rng& rng) {
  Schedule out;
  const int64_t block = golden_model().weights->config().draft.block_size;
  out.engine.num_threads = static_cast<int>(between(rng, 1, 2));
  out.engine.has_thread = rng.below(2) == 0;
  out.loop.pipelined = rng.below(3) != 0;
  out.engine.lanes_max = rng.below(4) == 0 ? 1 : between(rng, 2, 8);
  out.engine.rows_max = std::max<int64_t>(out.engine.lanes_max * (block + 1), between(rng, 1, 200));
  out.engine.blocks_max = rng.below(4) != 0 ? between(rng, kBlocksForOne, 5) : between(rng, 8, 64);
  SchedulerOptions& s = out.loop.scheduler;
  s.num_lanes = out.engine.lanes_max;
  s.rows_max = out.engine.rows_max;
  s.num_drafts = rng.below(4) == 0 ? 0 : between(rng, 1, block);
  s.chunk_rows_min = between(rng, 1, 40);
  s.token_budget = between(rng, 1, 300);
  s.step_budget_ns = between(rng, 1, 100'000'000);
  s.admission = rng.below(2) == 0 ? "fcfs" : "shortest";
  // What a step seems to cost decides the verify lengths: from all drafts to none.
  s.profile.a = 1e5 * static_cast<double>(rng.uniform());
  s.profile.v = 1e5 * static_cast<double>(rng.uniform());
  s.snapshots.preempt_by = static_cast<PreemptBy>(rng.below(3));
  s.snapshots.bytes_max = rng.below(3) == 0 ? 0 : int64_t{64} << 20;
  out.loop.num_host_blocks = rng.below(4) == 0 ? 0 : between(rng, 1, 40);
  out.loop.tail_bytes_max = rng.below(3) == 0 ? 0 : int64_t{1} << 20;
  return out;
}

SameTokens& suite() {
  static SameTokens suite(golden_model(), suite_request, loop_engine_options());
  return suite;
}

TEST(SameTokensGolden, AllTogether) {
  Exercised exercised;
  Rng rng(1);
  EngineOptions engine = loop_engine_options();
  engine.lanes_max = 64;
  engine.rows_max = engine.logits_rows_max = 512;
  engine.blocks_max = 192;
  for (const int threads : {1, 2}) {
    engine.num_threads = threads;
    engine.has_thread = threads == 2;
    StepLoopOptions options = loop_test_options();
    options.scheduler.num_lanes = 64;
    options.scheduler.rows_max = 512;
    suite().check(0, numbers_below(kNumRequests), rng, {engine, options}, exercised);
    if (HasFatalFailure()) return;
  }
}

// A failure names its seed, on which everything about the schedule depends (but for the machine's timing: the fitted
// cost curve chooses chunks and verify lengths).
TEST(SameTokensGolden, UnderRandomSchedules) {
  Exercised exercised;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed, 99);
    const Schedule schedule = random_schedule(rng);
    std::vector<uint64_t> numbers = shuffled(numbers_below(kNumRequests), rng);
    numbers.resize(static_cast<size_t>(between(rng, 3, 5)));
    suite().check(seed, numbers, rng, schedule, exercised);
    if (HasFatalFailure()) return;
  }
  // The schedules did what they are for.
  EXPECT_GT(exercised.num_preemptions, 5);
  EXPECT_GT(exercised.num_saved_bytes, 50'000);
  EXPECT_GT(exercised.num_hit_tokens, 1000);
  EXPECT_GT(exercised.num_host_blocks, 2);
  EXPECT_GT(exercised.num_accepted, 100);
  EXPECT_GT(exercised.num_rejected, 100);
  EXPECT_GT(exercised.num_shared_tokens, 1000);
  EXPECT_GT(exercised.num_tail_tokens, 300);
  std::printf(
      "%ld preemptions, %ld bytes of states saved, %ld hit tokens, %ld blocks from host memory, %ld drafts "
      "accepted, %ld rejected, %ld shared prompt tokens\n",
      static_cast<long>(exercised.num_preemptions), static_cast<long>(exercised.num_saved_bytes),
      static_cast<long>(exercised.num_hit_tokens), static_cast<long>(exercised.num_host_blocks),
      static_cast<long>(exercised.num_accepted), static_cast<long>(exercised.num_rejected),
      static_cast<long>(exercised.num_shared_tokens));
}

}  // namespace
}  // namespace deepinfer
