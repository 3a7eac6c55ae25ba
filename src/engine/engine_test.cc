// SPDX-License-Identifier: MIT
// What an engine refuses, and that a refusal changes nothing.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "engine/golden_prompts.h"
#include "engine/sequence_driver.h"

namespace deepinfer {
namespace {

Batch one_row(const BlockTable& blocks, TokenId token, int64_t position) {
  Batch batch{.tokens = {token}};
  batch.sequences.push_back(
      {.lane = 0, .blocks = &blocks, .position_begin = position, .rows = {0, 1}, .num_logits_rows = 1});
  return batch;
}

TEST(Engine, RefusesOptionsThatCannotWork) {
  EngineOptions options = golden_options();
  options.rows_max = 0;
  EXPECT_FALSE(Engine::open(golden_weights(), golden_token_map(), options).ok());
  options = golden_options();
  options.lanes_max = int64_t{1} << 40;
  EXPECT_FALSE(Engine::open(golden_weights(), golden_token_map(), options).ok());
  EXPECT_FALSE(Engine::open(golden_weights(), TokenMap{}, golden_options()).ok()) << "a token map of another tokenizer";
}

TEST(Engine, RefusesBatchesThatDoNotFitItsState) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  const BlockTable blocks({BlockId{0}}), beyond({BlockId{1000}});
  EXPECT_FALSE(engine->launch(one_row(blocks, 5, 0)).ok()) << "nobody was admitted to lane 0";
  ASSERT_TRUE(engine->admit({.lane = 0}).ok());
  EXPECT_FALSE(engine->admit({.lane = 99}).ok());
  EXPECT_FALSE(engine->launch(one_row(blocks, 512, 0)).ok()) << "token outside the vocabulary";
  EXPECT_FALSE(engine->launch(one_row(blocks, -1, 0)).ok());
  EXPECT_FALSE(engine->launch(one_row(blocks, 5, 128)).ok()) << "position outside its blocks";
  EXPECT_FALSE(engine->launch(one_row(beyond, 5, 0)).ok()) << "no such block";
  EXPECT_FALSE(engine->launch(one_row(blocks, 5, 50)).ok()) << "the tokens before position 50 are unknown";
  EXPECT_FALSE(engine->sample(nullptr).ok()) << "nothing was launched";
  EXPECT_FALSE(engine->collect().ok());
  const TokenMasks masks(1, 512), narrow(1, 500);
  const StepMasks two = {{&masks}, {&masks}}, wrong = {{&narrow}};
  ASSERT_TRUE(engine->launch(one_row(blocks, 5, 0)).ok());
  EXPECT_FALSE(engine->sample(&two).ok()) << "masks of two sequences for one";
  EXPECT_FALSE(engine->sample(&wrong).ok()) << "masks of another vocabulary";
  ASSERT_TRUE(engine->sample(nullptr).ok());
  EXPECT_TRUE(engine->collect().ok());
}

TEST(Engine, MasksLeaveOnlyWhatTheyAllow) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  const BlockTable blocks({BlockId{0}});
  SamplingParams params;
  params.temperature = 0;
  ASSERT_TRUE(engine->admit({.lane = 0, .params = params}).ok());
  TokenMasks masks(1, 512);
  allow(masks.row(0), 321);
  ASSERT_TRUE(engine->launch(one_row(blocks, 5, 0)).ok());
  const StepMasks step_masks = {{&masks}};
  ASSERT_TRUE(engine->sample(&step_masks).ok());
  EXPECT_EQ(engine->collect().value().sequences[0].tokens, std::vector<TokenId>{321});
  ASSERT_TRUE(engine->launch(one_row(blocks, 6, 1)).ok());
  const TokenMasks nothing(1, 512);
  const StepMasks step_nothing = {{&nothing}};
  ASSERT_TRUE(engine->sample(&step_nothing).ok());
  const StepOutput output = engine->collect().value();
  EXPECT_FALSE(output.sequences[0].has_allowed_token);
  EXPECT_TRUE(output.sequences[0].tokens.empty());
}

// Random nonsense never runs into a CHECK or past a buffer; what is accepted gives finite logits.
TEST(Engine, RandomBatchesAreRefusedOrRun) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  Rng rng(11);
  for (int32_t lane = 0; lane < 4; ++lane) ASSERT_TRUE(engine->admit({.lane = lane}).ok());
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng.below(static_cast<uint64_t>(high - low + 1)));
  };
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<BlockTable> tables(3);
    for (BlockTable& table : tables)
      for (int64_t b = pick(0, 2); b > 0; --b) table.push_back(static_cast<BlockId>(pick(0, 70)));
    Batch batch;
    for (int64_t s = pick(0, 2); s >= 0; --s) {
      const int64_t begin = batch.num_rows() - (rng.below(20) == 0), num = pick(rng.below(9) == 0 ? -1 : 1, 5);
      for (int64_t t = 0; t < num; ++t)
        batch.tokens.push_back(static_cast<TokenId>(pick(rng.below(40) == 0 ? -2 : 0, 512)));
      batch.sequences.push_back({.lane = static_cast<int32_t>(pick(-1, 4)),
                                 .blocks = &tables[static_cast<size_t>(s)],
                                 .position_begin = rng.below(3) ? 0 : pick(-1, 260),
                                 .rows = {begin, begin + num},
                                 .num_logits_rows = pick(-1, 3),
                                 .limits = {.decoder_begin = pick(-3, 4), .window_begin = pick(-3, 4)},
                                 .history = {1, 2, 3},
                                 .sample = rng.below(2) == 0,
                                 .draft = rng.below(2) == 0});
    }
    if (!engine->launch(batch).ok()) continue;
    ++accepted;
    ASSERT_TRUE(engine->sample(nullptr).ok());
    const StepOutput step = engine->collect().value();
    for (const SequenceOutput& output : step.sequences) EXPECT_TRUE(output.is_finite);
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace deepinfer
