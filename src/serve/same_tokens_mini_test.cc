// SPDX-License-Identifier: MIT
// The same requests, the same tokens and log probabilities, on the trained model of this program: its drafts stand more
// often than not, its window is as long as a block, and a prompt must have a thousand tokens before an exact hit saves
// any. Few of the requests are that long; each way of serving is gone once, with all 64.
#include "serve/same_tokens.h"

namespace deepinfer {
namespace {

constexpr uint64_t kNumRequests = 64, kLongEvery = 16;
constexpr int64_t kLongTokens = 1160;  // 9 blocks and a little, and more than exact replay needs (1,017)
constexpr int64_t kContext = 1408;
constexpr int64_t kBlocksForLongest = 11;

const LoadedModel& mini_model() {
  static const LoadedModel model = load_model("mini").value();
  return model;
}

LoopRequest mini_request(uint64_t number) {
  Rng rng(number, 23);
  LoopRequest request;
  SequenceRequest& s = request.sequence;
  request.sampling = random_sampling(rng);
  if (number % 3 == 0)
    request.sampling.logit_bias = {{static_cast<TokenId>(8 + rng.below(490)), 40.0f}};  // drafts stand
  const bool grows = rng.below(3) == 0;                                                 // out of its first block
  s.prompt = random_prompt(2000 + number, grows ? between(rng, 118, 127) : between(rng, 4, 40));
  if (number % kLongEvery == 0) {
    const auto shared = random_prompt(number / kLongEvery % 2, kLongTokens);
    s.prompt.insert(s.prompt.begin(), shared.begin(), shared.end());
  }
  s.max_output_tokens = between(rng, 1, 24);
  s.stop_ids = request.sampling.stop_ids;
  if (!request.sampling.ignore_eos) s.stop_ids.push_back(1);
  s.replay = ReplayMode::kExact;
  return request;
}

EngineOptions mini_options() {
  EngineOptions options = loop_engine_options();
  options.lanes_max = 16;
  options.rows_max = options.logits_rows_max = 256;
  options.blocks_max = 128;
  options.context_max = kContext;
  return options;
}

Schedule mini_schedule() {
  Schedule out;
  out.engine = mini_options();
  out.loop = loop_test_options();
  out.loop.scheduler.num_lanes = out.engine.lanes_max;
  out.loop.scheduler.rows_max = out.engine.rows_max;
  out.loop.scheduler.context_tokens_max = kContext;
  return out;
}

SameTokens& suite() {
  static SameTokens suite(mini_model(), mini_request, mini_options());
  return suite;
}

Exercised serve(uint64_t seed, const Schedule& schedule, bool shuffles = true) {
  Exercised exercised;
  Rng rng(seed, 7);
  std::vector<uint64_t> numbers = numbers_below(kNumRequests);
  if (shuffles) numbers = shuffled(std::move(numbers), rng);
  suite().check(seed, numbers, rng, schedule, exercised);
  return exercised;
}

TEST(SameTokensMini, AllTogetherWithDrafts) {
  Schedule schedule = mini_schedule();
  schedule.engine.lanes_max = schedule.loop.scheduler.num_lanes = 64;
  schedule.engine.rows_max = schedule.engine.logits_rows_max = schedule.loop.scheduler.rows_max = 512;
  schedule.engine.has_thread = true;
  const Exercised exercised = serve(1, schedule, false);
  EXPECT_GT(exercised.num_accepted, 20);
  EXPECT_GT(exercised.num_rejected, 20);
}

TEST(SameTokensMini, WithoutDraftsStepByStepOnTwoThreads) {
  Schedule schedule = mini_schedule();
  schedule.engine.num_threads = 2;
  schedule.loop.pipelined = false;
  schedule.loop.scheduler.num_drafts = 0;
  EXPECT_EQ(serve(2, schedule).num_accepted, 0);
}

TEST(SameTokensMini, TinyChunks) {
  Schedule schedule = mini_schedule();
  schedule.loop.scheduler.chunk_rows_min = 7;
  schedule.loop.scheduler.token_budget = 7;
  schedule.loop.scheduler.step_budget_ns = 1;
  EXPECT_GT(serve(3, schedule).num_chunks, 500);
}

TEST(SameTokensMini, OneLongChunkAStepOnTwoThreadsAndEveryDraftVerified) {
  Schedule schedule = mini_schedule();
  schedule.engine.num_threads = 2;
  schedule.engine.has_thread = true;
  schedule.engine.rows_max = schedule.loop.scheduler.rows_max = 1408;
  schedule.loop.scheduler.token_budget = 1408;
  schedule.loop.scheduler.verifies_all = true;
  EXPECT_GT(serve(4, schedule).num_rejected, 20);
}

// A pool that holds little more than the longest request.
TEST(SameTokensMini, PreemptedAndComputedAgain) {
  Schedule schedule = mini_schedule();
  schedule.engine.blocks_max = kBlocksForLongest + 1;
  schedule.loop.scheduler.snapshots.preempt_by = PreemptBy::kRecompute;
  EXPECT_GT(serve(5, schedule).num_preemptions, 0);
}

TEST(SameTokensMini, PreemptedPutAwayAndBroughtBack) {
  Schedule schedule = mini_schedule();
  schedule.engine.blocks_max = kBlocksForLongest + 1;
  schedule.engine.has_thread = true;
  schedule.loop.scheduler.snapshots = {.preempt_by = PreemptBy::kSnapshot, .bytes_max = int64_t{64} << 20};
  const Exercised exercised = serve(6, schedule);
  EXPECT_GT(exercised.num_preemptions, 0);
  EXPECT_GT(exercised.num_saved_bytes, 10'000);
}

TEST(SameTokensMini, BehindExactHitsAndTailsFromHostMemoryAndBack) {
  Schedule schedule = mini_schedule();
  schedule.engine.blocks_max = 2 * kBlocksForLongest;
  schedule.loop.num_host_blocks = 64;
  schedule.loop.tail_bytes_max = int64_t{16} << 20;
  const Exercised exercised = serve(7, schedule);
  EXPECT_GT(exercised.num_hit_tokens, 1000);
  EXPECT_GT(exercised.num_host_blocks, 0);
}

}  // namespace
}  // namespace deepinfer
