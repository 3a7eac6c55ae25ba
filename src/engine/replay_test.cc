// SPDX-License-Identifier: MIT
// Bounded replay after a prefix hit (decisions 4 and 5). Model A: window 16, six layers up to the last kv source, nine
// in all, so exact replay starts at min(H - 90, L - 136).
#include <gtest/gtest.h>

#include "base/philox.h"
#include "engine/golden_prompts.h"
#include "engine/sequence_driver.h"

namespace deepinfer {
namespace {

constexpr int64_t kPrompt = 300, kHit = 256, kDecode = 30;

std::vector<TokenId> sample_tokens() {
  Rng rng(5);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < kPrompt + kDecode; ++i) tokens.push_back(static_cast<TokenId>(rng.below(500)));
  return tokens;
}

struct Trail {
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<TokenId>> drafts;
  std::vector<std::vector<float>> confidences;
  bool operator==(const Trail&) const = default;
};

// The prompt from run_begin on in chunks, then decode rows with drafts.
Trail run(Engine& engine, SequenceDriver& driver, const std::vector<TokenId>& tokens, int64_t run_begin,
          int64_t chunk) {
  Trail trail;
  const auto keep = [&](const SequenceOutput& output) {
    trail.logits.push_back(driver.logits);
    trail.drafts.push_back(output.drafts);
    trail.confidences.push_back(output.confidences);
  };
  const int64_t look_back = std::min<int64_t>(3, run_begin);
  driver.history.assign(tokens.begin() + run_begin - look_back, tokens.begin() + run_begin);
  for (int64_t begin = run_begin; begin < kPrompt; begin += chunk) {
    const int64_t end = std::min(kPrompt, begin + chunk);
    const SequenceOutput output = driver.run({tokens.begin() + begin, tokens.begin() + end}, begin, end == kPrompt);
    if (end == kPrompt) keep(output);
    driver.history.clear();
  }
  for (int64_t i = 0; i < kDecode; ++i) keep(driver.run({tokens[static_cast<size_t>(kPrompt + i)]}, kPrompt + i, 1));
  (void)engine;
  return trail;
}

EngineOptions replay_options() {
  EngineOptions options = golden_options();
  options.rows_max = 512;
  return options;
}

const BlockTable kColdBlocks({BlockId{4}, BlockId{8}, BlockId{15}});
const BlockTable kHitBlocks({BlockId{4}, BlockId{8}, BlockId{16}});  // the hit's blocks, and a fresh one

TEST(Replay, ExactReplayAfterAHitEqualsAColdRun) {
  auto engine = golden_engine(replay_options());
  ASSERT_TRUE(engine);
  const auto tokens = sample_tokens();
  SequenceDriver cold(*engine, 0, kColdBlocks);
  const Trail wanted = run(*engine, cold, tokens, 0, kPrompt);
  const ReplayPlan plan = plan_replay(engine->replay_geometry(), ReplayMode::kExact, kHit, kPrompt);
  ASSERT_TRUE(plan.adopts_hit);
  EXPECT_EQ(plan.run_begin, 164);
  for (const int64_t chunk : {300, 33, 1}) {
    SequenceDriver hit(*engine, 1, kHitBlocks);
    hit.limits = plan.limits;
    EXPECT_TRUE(run(*engine, hit, tokens, plan.run_begin, chunk) == wanted) << "chunks of " << chunk;
  }
}

// One row fewer must show: the formula is not merely enough, the test can tell.
TEST(Replay, OneRowLessThanTheFormulaIsNotExact) {
  auto engine = golden_engine(replay_options());
  ASSERT_TRUE(engine);
  const auto tokens = sample_tokens();
  SequenceDriver cold(*engine, 0, kColdBlocks);
  const Trail wanted = run(*engine, cold, tokens, 0, kPrompt);
  ReplayPlan plan = plan_replay(engine->replay_geometry(), ReplayMode::kExact, kHit, kPrompt);
  plan.limits.decoder_begin = plan.limits.decoder_window_begin = kPrompt - 16;
  SequenceDriver hit(*engine, 1, kHitBlocks);
  hit.limits = plan.limits;
  EXPECT_FALSE(run(*engine, hit, tokens, plan.run_begin, kPrompt) == wanted);
}

TEST(Replay, ExactModeWithoutAHitEqualsReplayOff) {
  auto engine = golden_engine(replay_options());
  ASSERT_TRUE(engine);
  const auto tokens = sample_tokens();
  SequenceDriver off(*engine, 0, kColdBlocks);
  const Trail wanted = run(*engine, off, tokens, 0, kPrompt);
  const ReplayPlan plan = plan_replay(engine->replay_geometry(), ReplayMode::kExact, 0, kPrompt);
  EXPECT_EQ(plan.limits.decoder_begin, kPrompt - 46);
  for (const int64_t chunk : {300, 64, 7}) {
    SequenceDriver exact(*engine, 1, BlockTable({BlockId{20}, BlockId{21}, BlockId{22}}));
    exact.limits = plan.limits;
    EXPECT_TRUE(run(*engine, exact, tokens, 0, chunk) == wanted) << "chunks of " << chunk;
  }
}

// Fast replay is an approximation, but one that depends on the prompt and the hit alone.
TEST(Replay, FastReplayDoesNotDependOnChunks) {
  auto engine = golden_engine(replay_options());
  ASSERT_TRUE(engine);
  const auto tokens = sample_tokens();
  SequenceDriver cold(*engine, 0, kColdBlocks);
  const Trail full = run(*engine, cold, tokens, 0, kPrompt);
  for (const int64_t hit_tokens : {int64_t{0}, kHit}) {
    const ReplayPlan plan = plan_replay(engine->replay_geometry(), ReplayMode::kFast, hit_tokens, kPrompt);
    const BlockTable blocks = hit_tokens > 0 ? kHitBlocks : BlockTable({BlockId{20}, BlockId{21}, BlockId{22}});
    Trail wanted;
    for (const int64_t chunk : {300, 50, 9, 1}) {
      SequenceDriver fast(*engine, 1, blocks);
      fast.limits = plan.limits;
      Trail trail = run(*engine, fast, tokens, plan.run_begin, chunk);
      if (chunk == 300) wanted = std::move(trail);
      else EXPECT_TRUE(trail == wanted) << "hit " << hit_tokens << ", chunks of " << chunk;
    }
    EXPECT_FALSE(wanted == full);
    const Difference d = difference(wanted.logits[0], full.logits[0]);
    std::printf("fast replay, hit %ld: logits differ from a full run by rms %.3f\n", static_cast<long>(hit_tokens),
                d.rms);
    EXPECT_LT(d.rms, 2.0);  // logits have standard deviation 3
  }
}

// A prompt no longer than the window has nothing to cut.
TEST(Replay, FastReplayOfAShortPromptIsExact) {
  auto engine = golden_engine(replay_options());
  ASSERT_TRUE(engine);
  const auto tokens = sample_tokens();
  const std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + 16);
  SequenceDriver off(*engine, 0, kColdBlocks), fast(*engine, 1, BlockTable({BlockId{20}}));
  fast.limits = plan_replay(engine->replay_geometry(), ReplayMode::kFast, 0, 16).limits;
  off.run(prompt, 0, 1);
  fast.run(prompt, 0, 1);
  EXPECT_EQ(off.logits, fast.logits);
}

}  // namespace
}  // namespace deepinfer
