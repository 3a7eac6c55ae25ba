// SPDX-License-Identifier: MIT
// Whose KV a request may find: its own tenant's, of the same image bytes, and, where exactness is asked for, nothing
// that stands behind a fast replay. And what the host-memory tier brings back.
#include <gtest/gtest.h>

#include "serve/step_loop_runs.h"

namespace deepinfer {
namespace {

LoopRequest exact_request(uint64_t seed, int64_t num_prompt) {
  LoopRequest request = loop_request(seed, num_prompt, 4);
  request.sequence.replay = ReplayMode::kExact;
  return request;
}

LoopRequest of_tenant(const std::string& salt) {
  LoopRequest request = exact_request(3, 200);
  request.sequence.tenant_salt = salt;
  return request;
}

TEST(StepLoopCache, TenantsDoNotShare) {
  LoopRun run;
  const LoopOutput first = run.run(of_tenant("red")), other = run.run(of_tenant("blue")),
                   again = run.run(of_tenant("red"));
  EXPECT_EQ(first.record.num_cached_tokens, 0);
  EXPECT_EQ(other.record.num_cached_tokens, 0);
  EXPECT_EQ(other.record.miss_reason, MissReason::kNeverStored);
  EXPECT_EQ(again.record.num_cached_tokens, 128);
  EXPECT_EQ(other.tokens, first.tokens);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(run.run(of_tenant("")).record.num_cached_tokens, 0);
}

// A prompt of 200 tokens with an image at [20, 40) whose rows and digest come from `image_seed`.
LoopRequest with_image(uint64_t image_seed) {
  LoopRequest request = exact_request(5, 200);
  const ModelConfig& config = golden_model().weights->config();
  const Range span{20, 40};
  std::fill(request.sequence.prompt.begin() + span.begin, request.sequence.prompt.begin() + span.end,
            static_cast<TokenId>(config.image_token_id));
  auto rows = std::make_shared<Buffer<bf16>>(span.size() * config.hidden);
  Rng rng(image_seed);
  for (bf16& value : *rows) value = to_bf16(rng.uniform() - 0.5f);
  MediaSpan media{.begin = span.begin, .end = span.end};
  media.digest.fill(static_cast<uint8_t>(image_seed));
  request.sequence.media = {media};
  request.images = {{span, std::move(rows)}};
  return request;
}

TEST(StepLoopCache, ImagesWithOtherBytesAreOtherPrompts) {
  LoopRun run;
  const LoopOutput first = run.run(with_image(1)), other = run.run(with_image(2)), again = run.run(with_image(1));
  EXPECT_EQ(other.record.num_cached_tokens, 0);
  EXPECT_EQ(again.record.num_cached_tokens, 128);
  EXPECT_EQ(again.tokens, first.tokens);
  LoopRun alone;
  EXPECT_EQ(other.tokens, alone.run(with_image(2)).tokens);
}

// A fast prompt behind a hit leaves blocks that exact requests do not use; fast ones do.
TEST(StepLoopCache, ExactRequestsNeverStandOnFastReplay) {
  LoopRun run;
  const auto fast_prompt = [](int64_t num_prompt) {
    LoopRequest request = loop_request(9, num_prompt, 4);  // equal seeds, equal beginnings
    request.sequence.replay = ReplayMode::kFast;
    return request;
  };
  EXPECT_EQ(run.run(fast_prompt(140)).record.num_cached_tokens, 0);
  EXPECT_EQ(run.run(fast_prompt(300)).record.num_cached_tokens, 128);
  const LoopOutput exact = run.run(exact_request(9, 300));
  EXPECT_EQ(exact.record.num_cached_tokens, 128);
  EXPECT_EQ(exact.record.miss_reason, MissReason::kReplay);
  LoopRun alone;
  EXPECT_EQ(exact.tokens, alone.run(exact_request(9, 300)).tokens);
  EXPECT_EQ(run.run(fast_prompt(300)).record.num_cached_tokens, 256);
  EXPECT_EQ(run.run(exact_request(9, 300)).record.num_cached_tokens, 256);  // the exact run's block took the place
  const StepLoopSnapshot snapshot = run.loop->snapshot();
  EXPECT_EQ(snapshot.cache.misses[static_cast<size_t>(MissReason::kReplay)], 1);
  EXPECT_EQ(snapshot.cache.num_lookups, 5);
}

// Ten conversations over a pool that holds three of them: what was evicted comes back from host memory.
TEST(StepLoopCache, HostMemoryBringsEvictedBlocksBack) {
  EngineOptions engine = loop_engine_options();
  engine.blocks_max = 6;
  StepLoopOptions options = loop_test_options();
  options.num_host_blocks = 20;
  LoopRun run(options, engine);
  std::vector<std::vector<TokenId>> first;
  for (uint64_t i = 0; i < 10; ++i) first.push_back(run.run(exact_request(100 + i, 200)).tokens);
  int64_t num_loaded = 0;
  for (uint64_t i = 0; i < 10; ++i) {
    const LoopOutput again = run.run(exact_request(100 + i, 200));
    EXPECT_EQ(again.tokens, first[i]) << i;
    EXPECT_EQ(again.record.num_cached_tokens, 128) << i;
    num_loaded += again.record.num_loaded_blocks;
  }
  EXPECT_GE(num_loaded, 7);
  const StepLoopSnapshot snapshot = run.loop->snapshot();
  EXPECT_EQ(snapshot.cache.num_loaded, num_loaded);
  EXPECT_GT(snapshot.cache.num_kept, 0);
  EXPECT_EQ(snapshot.num_block_copies, snapshot.cache.num_kept + snapshot.cache.num_offloaded + num_loaded);
  EXPECT_EQ(snapshot.num_copied_bytes, snapshot.num_block_copies * run.engine().cache_layout().block_bytes);
}

// Preempted with its state in host memory, or computed again. Prompts are admitted chunk by chunk and grow to three
// blocks each in a pool of four.
TEST(StepLoopCache, PreemptedSequencesResumeFromTheirSnapshot) {
  EngineOptions engine = loop_engine_options();
  engine.blocks_max = 4;
  for (const PreemptBy by : {PreemptBy::kRecompute, PreemptBy::kSnapshot}) {
    StepLoopOptions options = loop_test_options();
    options.scheduler.num_drafts = 0;
    options.scheduler.token_budget = 64;
    options.scheduler.snapshots = {.preempt_by = by, .bytes_max = int64_t{1} << 20};
    LoopRun run(options, engine);
    std::vector<SequenceId> ids;
    for (uint64_t i = 0; i < 3; ++i) {
      LoopRequest request = exact_request(200 + i, 250);
      request.sequence.max_output_tokens = 12;
      ids.push_back(run.submit(std::move(request)));
    }
    run.finish();
    int64_t num_preemptions = 0, num_bytes = 0;
    for (uint64_t i = 0; i < 3; ++i) {
      LoopRequest request = exact_request(200 + i, 250);
      request.sequence.max_output_tokens = 12;
      request.sequence.use_prefix_cache = false;
      LoopRun alone;
      EXPECT_EQ(run.output(ids[i]).tokens, alone.run(std::move(request)).tokens) << i;
      const SequenceRecord& record = run.output(ids[i]).record;
      num_preemptions += record.num_preemptions;
      num_bytes += record.num_offloaded_bytes;
      EXPECT_EQ(record.num_offloaded_bytes, record.num_loaded_bytes);
    }
    EXPECT_GT(num_preemptions, 0);
    EXPECT_EQ(num_bytes > 0, by == PreemptBy::kSnapshot);
    EXPECT_EQ(run.loop->snapshot().snapshot_bytes, 0);
  }
}

// A conversation's next prompt: the whole one before with its answer, then something new. Its hit ends where a decode
// row left the windows of the encoder, so nothing is run again, and all is as if there had been no cache - in fast
// mode, too, where a hit without a tail is an approximation.
TEST(StepLoopCache, AHitWithAStoredTailReplaysNothingAndGivesWhatAColdRunGives) {
  for (const ReplayMode replay : {ReplayMode::kFast, ReplayMode::kExact})
    for (const bool pipelined : {false, true}) {
      StepLoopOptions options = loop_test_options();
      options.tail_bytes_max = 1 << 20;
      options.pipelined = pipelined;
      LoopRun run(options);
      LoopRequest first = loop_request(21, 250, 14);
      first.sequence.replay = replay;
      const std::vector<TokenId> begun = first.sequence.prompt;
      const LoopOutput answer = run.run(std::move(first));
      const auto next = [&] {
        LoopRequest request = loop_request(22, 60, 24);
        request.sampling.top_logprobs = 2;
        request.sequence.replay = replay;
        std::vector<TokenId>& prompt = request.sequence.prompt;
        prompt.insert(prompt.begin(), answer.tokens.begin(), answer.tokens.end());
        prompt.insert(prompt.begin(), begun.begin(), begun.end());
        return request;
      };
      const LoopOutput got = run.run(next());
      EXPECT_EQ(got.record.num_cached_tokens, 256);
      EXPECT_EQ(got.record.num_tail_tokens, 256);
      EXPECT_EQ(got.record.num_replayed_tokens, 0);
      EXPECT_EQ(run.loop->snapshot().tails.num_hits, 1);
      LoopRun cold;
      const LoopOutput want = cold.run(next());
      EXPECT_EQ(got.tokens, want.tokens);
      ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
      for (size_t i = 0; i < want.logprobs.size(); ++i) EXPECT_EQ(got.logprobs[i].logprob, want.logprobs[i].logprob);
    }
}

}  // namespace
}  // namespace deepinfer
