// SPDX-License-Identifier: MIT
// Rejected draft rows leave no trace: after a verify run whose drafts were wrong, the sequence goes on as if they had
// never run. The runs lie over borders of compression groups, ring slots and blocks.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "engine/golden_prompts.h"
#include "engine/sequence_driver.h"

namespace deepinfer {
namespace {

std::vector<TokenId> random_tokens(uint64_t seed, int64_t num) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < num; ++i) tokens.push_back(static_cast<TokenId>(rng.below(500)));
  return tokens;
}

EngineOptions verify_options() {
  EngineOptions options = golden_options();
  options.verify_rows_max = 6;
  return options;
}

TEST(Rollback, WrongDraftsLeaveNoTrace) {
  auto engine = golden_engine(verify_options());
  ASSERT_TRUE(engine);
  // 126 to 129: around a block border; 61 to 64: around a ring's end (64 slots); odd and even: inside and at the end of
  // a group.
  for (const int64_t length : {15, 16, 30, 61, 62, 63, 64, 125, 126, 127, 128}) {
    const auto tokens = random_tokens(7, length + 12);
    const std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + length);
    SequenceDriver clean(*engine, 0, BlockTable({BlockId{3}, BlockId{9}}));
    clean.run(prompt, 0, 1);
    for (int64_t num_drafts = 1; num_drafts <= 5; ++num_drafts) {
      SequenceDriver tried(*engine, 1, BlockTable({BlockId{20}, BlockId{11}}));
      tried.run(prompt, 0, 1);
      // The anchor with drafts that the picks contradict, then the true continuation from the anchor on.
      std::vector<TokenId> rows = {tokens[static_cast<size_t>(length)]};
      for (const TokenId wrong : random_tokens(99 + static_cast<uint64_t>(num_drafts), num_drafts))
        rows.push_back(wrong);
      SequenceOutput output = tried.run(rows, length, num_drafts + 1);
      if (output.num_accepted > 0) continue;  // a lucky draft: another length covers this place
      SequenceDriver plain(*engine, 2, BlockTable({BlockId{30}, BlockId{31}}));
      plain.run(prompt, 0, 1);
      const SequenceOutput once = plain.run({tokens[static_cast<size_t>(length)]}, length, 1);
      EXPECT_EQ(output.tokens, once.tokens) << length << " " << num_drafts;
      EXPECT_EQ(output.drafts, once.drafts) << length << " " << num_drafts;
      EXPECT_EQ(output.confidences, once.confidences) << length << " " << num_drafts;
      for (int64_t i = 1; i < 10; ++i) {
        const SequenceOutput a = tried.run({tokens[static_cast<size_t>(length + i)]}, length + i, 1);
        const SequenceOutput b = plain.run({tokens[static_cast<size_t>(length + i)]}, length + i, 1);
        ASSERT_EQ(tried.logits, plain.logits) << "length " << length << ", drafts " << num_drafts << ", token " << i;
        ASSERT_EQ(a.drafts, b.drafts);
        ASSERT_EQ(a.confidences, b.confidences);
      }
    }
  }
}

// Forced acceptance: the drafts are the greedy continuation itself, with `num_right` of them right and the rest wrong.
TEST(Rollback, VerifyRunsGiveWhatSingleStepsGive) {
  auto engine = golden_engine(verify_options());
  ASSERT_TRUE(engine);
  const auto prompt = random_tokens(21, 33);
  SequenceDriver plain(*engine, 0, BlockTable({BlockId{0}}));
  std::vector<TokenId> greedy = plain.run(prompt, 0, 1).tokens;
  for (int64_t i = 0; i < 40; ++i) greedy.push_back(plain.run({greedy.back()}, 33 + i, 1).tokens[0]);
  for (int64_t num_right = 0; num_right <= 5; ++num_right) {
    SequenceDriver verified(*engine, 1, BlockTable({BlockId{1}}));
    std::vector<TokenId> picked = verified.run(prompt, 0, 1).tokens;
    while (picked.size() < 34) {
      const size_t at = picked.size() - 1;
      std::vector<TokenId> rows = {picked.back()};
      for (int64_t i = 1; i <= 5; ++i)
        rows.push_back(i <= num_right ? greedy[at + static_cast<size_t>(i)]
                                      : (greedy[at + static_cast<size_t>(i)] + 1) % 500);
      const SequenceOutput output = verified.run(rows, 33 + static_cast<int64_t>(at), 6);
      ASSERT_EQ(output.num_accepted, num_right);
      picked.insert(picked.end(), output.tokens.begin(), output.tokens.end());
    }
    EXPECT_TRUE(std::equal(picked.begin(), picked.begin() + 34, greedy.begin())) << num_right;
  }
}

}  // namespace
}  // namespace deepinfer
