// SPDX-License-Identifier: MIT
// Steps launched while others run: rows that follow give what rows written out give, an end is seen by the very next
// step, and the caller's batch, tables and masks may change as engine.h says.
#include <gtest/gtest.h>

#include "engine/golden_prompts.h"
#include "engine/sequence_driver.h"

namespace deepinfer {
namespace {

constexpr int64_t kOutputs = 30;

LaneStart lane_start(int32_t lane) {
  LaneStart start{.lane = lane, .output_tokens_max = kOutputs};
  start.params.temperature = lane == 0 ? 0.0f : 1.0f;
  start.params.seed = static_cast<uint64_t>(lane);
  if (lane % 2 == 0) start.params.logit_bias = {{17, 60.0f}, {23, 58.0f}};  // drafts stand
  if (lane % 2 == 0) start.params.bad_words = {{17, 17, 17}};
  start.prompt = {5, 6, 7, 8, 9, 10, 11};
  for (int32_t i = 0; i < 20 * lane; ++i) start.prompt.push_back(100 + i);
  return start;
}

EngineOptions engine_options(bool has_thread) {
  EngineOptions options = golden_options();
  options.has_thread = has_thread;
  return options;
}

// One sequence alone, one row a step, every row written out.
std::vector<TokenId> tokens_alone(const LaneStart& start) {
  auto engine = golden_engine(engine_options(false));
  const BlockTable blocks({BlockId{3}, BlockId{4}});
  EXPECT_TRUE(engine->admit(start).ok());
  std::vector<TokenId> rows = start.prompt, tokens;
  int64_t position = 0;
  while (static_cast<int64_t>(tokens.size()) < kOutputs) {
    Batch batch{.tokens = rows};
    batch.sequences.push_back({.lane = start.lane,
                               .blocks = &blocks,
                               .position_begin = position,
                               .rows = {0, batch.num_rows()},
                               .num_logits_rows = 1});
    EXPECT_TRUE(engine->launch(batch).ok() && engine->sample(nullptr).ok());
    position += batch.num_rows();
    rows = engine->collect().value().sequences[0].tokens;
    tokens.push_back(rows[0]);
    if (std::ranges::find(start.stop_ids, rows[0]) != start.stop_ids.end()) break;
  }
  return tokens;
}

struct Followed {
  std::vector<TokenId> tokens;
  int64_t num_accepted = 0, num_rows_after_end = 0;
};

// All lanes together, a step always under way while the next is launched.
std::vector<Followed> run_following(Engine& engine, const std::vector<LaneStart>& starts, int64_t verify_budget) {
  std::vector<Followed> out(starts.size());
  Batch batch;
  uint64_t step = 0;
  const auto launch = [&](bool follows) {
    batch = Batch{.step = step++, .verify_budget = verify_budget};
    std::vector<BlockTable> tables;  // gone when launch() has returned
    tables.reserve(starts.size());
    for (const LaneStart& start : starts) {
      const uint32_t first = static_cast<uint32_t>(2 * start.lane);
      tables.push_back(BlockTable({BlockId{first}, BlockId{first + 1}}));
      const int64_t begin = batch.num_rows();
      if (!follows) batch.tokens.insert(batch.tokens.end(), start.prompt.begin(), start.prompt.end());
      batch.sequences.push_back({.lane = start.lane,
                                 .blocks = &tables.back(),
                                 .rows = {begin, batch.num_rows()},
                                 .num_logits_rows = 1,
                                 .draft = true,
                                 .follows = follows,
                                 .follow_drafts_max = kDraftTokensMax});
    }
    ASSERT_TRUE(engine.launch(batch).ok());
    ASSERT_TRUE(engine.sample(nullptr).ok());
  };
  for (const LaneStart& start : starts) EXPECT_TRUE(engine.admit(start).ok());
  launch(false);
  for (int64_t i = 0; i <= kOutputs; ++i) {
    launch(true);
    const StepOutput output = engine.collect().value();
    int64_t budget_left = verify_budget;
    for (size_t s = 0; s < starts.size(); ++s) {
      const SequenceOutput& sequence = output.sequences[s];
      const auto& stops = starts[s].stop_ids;
      std::vector<TokenId>& tokens = out[s].tokens;
      const bool is_over = static_cast<int64_t>(tokens.size()) == kOutputs ||
                           (!tokens.empty() && std::ranges::find(stops, tokens.back()) != stops.end());
      if (is_over) out[s].num_rows_after_end += sequence.num_rows;
      tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
      out[s].num_accepted += sequence.num_accepted;
      budget_left -= sequence.num_verified;
    }
    EXPECT_GE(budget_left, 0);
  }
  EXPECT_TRUE(engine.collect().ok());
  return out;
}

TEST(Pipeline, RowsThatFollowGiveWhatRowsWrittenOutGive) {
  std::vector<LaneStart> starts;
  std::vector<std::vector<TokenId>> right;
  for (int32_t lane = 0; lane < 4; ++lane) {
    starts.push_back(lane_start(lane));
    right.push_back(tokens_alone(starts.back()));
  }
  starts[1].stop_ids = {right[1][12]};
  right[1] = tokens_alone(starts[1]);
  for (const bool has_thread : {false, true})
    for (const int64_t budget : {0, 3, 100}) {
      auto engine = golden_engine(engine_options(has_thread));
      ASSERT_TRUE(engine);
      const std::vector<Followed> followed = run_following(*engine, starts, budget);
      int64_t num_accepted = 0;
      for (size_t s = 0; s < starts.size(); ++s) {
        EXPECT_EQ(followed[s].tokens, right[s]) << "lane " << s << ", budget " << budget;
        EXPECT_EQ(followed[s].num_rows_after_end, 0) << "lane " << s;
        num_accepted += followed[s].num_accepted;
      }
      EXPECT_TRUE(budget == 0 ? num_accepted == 0 : budget < 100 || num_accepted > 10) << num_accepted;
    }
}

TEST(Pipeline, AFourthStepIsRefusedAndNothingRunsUnsampled) {
  auto engine = golden_engine(engine_options(true));
  ASSERT_TRUE(engine);
  ASSERT_TRUE(engine->admit(lane_start(0)).ok());
  const BlockTable blocks({BlockId{0}});
  Batch batch{.tokens = {5, 6, 7}};
  batch.sequences.push_back({.lane = 0, .blocks = &blocks, .rows = {0, 3}, .num_logits_rows = 1});
  ASSERT_TRUE(engine->launch(batch).ok());
  EXPECT_FALSE(engine->launch(batch).ok()) << "the first has not been sampled";
  EXPECT_FALSE(engine->collect().ok());
  ASSERT_TRUE(engine->sample(nullptr).ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(engine->launch(batch).ok());
    ASSERT_TRUE(engine->sample(nullptr).ok());
  }
  EXPECT_FALSE(engine->launch(batch).ok()) << "three are under way";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine->collect().ok());
  EXPECT_FALSE(engine->collect().ok());
}

}  // namespace
}  // namespace deepinfer
