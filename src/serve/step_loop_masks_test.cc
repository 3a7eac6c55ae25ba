// SPDX-License-Identifier: MIT
// Masks and bans through the step loop: what a source forbids never comes out, drafts or not, and one sequence's
// trouble is its own. The sources are written out by hand: which token may stand at which output position.
#include <gtest/gtest.h>

#include <functional>

#include "serve/step_loop_runs.h"

namespace deepinfer {
namespace {

// Allows what `rule(position, id)` says; checks that the loop tells it every token, once and in order.
class RuleMasks final : public MaskSource {
 public:
  using Rule = std::function<bool(int64_t position, TokenId id)>;
  explicit RuleMasks(Rule rule, std::vector<TokenId>* accepted = nullptr)
      : rule_(std::move(rule)), accepted_(accepted) {}

  Result<int64_t> fill_masks(std::span<const TokenId> drafts, TokenMasks& masks) override {
    for (int64_t row = 0;; ++row) {
      std::ranges::fill(masks.row(row), 0u);
      for (TokenId id = 0; id < static_cast<TokenId>(masks.vocab_size()); ++id)
        if (rule_(num_accepted_ + row, id)) allow(masks.row(row), id);
      if (row == static_cast<int64_t>(drafts.size()) || !is_allowed(masks.row(row), drafts[static_cast<size_t>(row)]))
        return row + 1;
    }
  }
  Status accept(std::span<const TokenId> tokens) override {
    for (const TokenId id : tokens) {
      if (!rule_(num_accepted_, id)) return internal_error("a token that the mask forbids");
      ++num_accepted_;
      if (accepted_) accepted_->push_back(id);
    }
    return {};
  }

 private:
  Rule rule_;
  std::vector<TokenId>* accepted_;
  int64_t num_accepted_ = 0;
};

class FailingMasks final : public MaskSource {
 public:
  Result<int64_t> fill_masks(std::span<const TokenId>, TokenMasks&) override {
    return invalid_argument("the rules of this request are too large");
  }
  Status accept(std::span<const TokenId>) override { return {}; }
};

// The bias makes the model say one token again and again, and the drafts agree with it until a mask does not.
constexpr TokenId kLoved = 123;
LoopRequest repeating(uint64_t seed, int64_t num_output) {
  LoopRequest request = loop_request(seed, 20, num_output);
  request.sampling.logit_bias = {{kLoved, 60.0f}};
  return request;
}

TEST(StepLoopMasks, HoldForEveryTokenAndGiveTheSameTokensWithAndWithoutDrafts) {
  const RuleMasks::Rule rules[] = {
      [](int64_t position, TokenId id) { return id % 3 == position % 3; },
      [](int64_t position, TokenId id) { return id != kLoved || position % 4 != 3; },
      [](int64_t, TokenId id) { return id < 7; },
  };
  for (const bool samples : {false, true}) {
    std::vector<std::vector<TokenId>> alone;
    for (const bool drafts : {true, false}) {
      LoopRun run;
      std::vector<SequenceId> ids;
      std::vector<std::vector<TokenId>> told(std::size(rules));
      for (size_t i = 0; i < std::size(rules); ++i) {
        LoopRequest request = repeating(i, 40);
        request.sequence.draft = drafts;
        request.sampling.temperature = samples ? 1.0f : 0.0f;
        request.masks = std::make_unique<RuleMasks>(rules[i], &told[i]);
        ids.push_back(run.submit(std::move(request)));
      }
      const SequenceId free = run.submit(repeating(9, 40));  // nothing asked of this one
      run.finish();
      EXPECT_EQ(run.output(free).tokens, std::vector<TokenId>(40, kLoved));
      EXPECT_GT(run.output(free).record.num_accepted, 20);
      for (size_t i = 0; i < std::size(rules); ++i) {
        const LoopOutput& output = run.output(ids[i]);
        ASSERT_EQ(output.tokens.size(), 40u);
        for (size_t t = 0; t < output.tokens.size(); ++t)
          EXPECT_TRUE(rules[i](static_cast<int64_t>(t), output.tokens[t])) << "rule " << i << ", token " << t;
        EXPECT_EQ(told[i], output.tokens);
        if (drafts) alone.push_back(output.tokens);
        EXPECT_EQ(output.tokens, alone[i]) << "rule " << i;
      }
      if (!drafts) continue;
      EXPECT_GT(run.output(ids[1]).record.num_accepted, 10) << "drafts stand between the refusals";
    }
  }
}

// Where a step is collected before the next is planned: else it has begun when the mask is there.
TEST(StepLoopMasks, DraftsThatCannotStandAreNotVerified) {
  StepLoopOptions options = loop_test_options();
  options.pipelined = false;
  LoopRun run(options);
  LoopRequest request = repeating(1, 30);
  request.masks = std::make_unique<RuleMasks>([](int64_t, TokenId id) { return id != kLoved; });
  const LoopOutput output = run.run(std::move(request));
  EXPECT_EQ(output.tokens.size(), 30u);
  EXPECT_GT(output.record.num_drafted, 0);
  EXPECT_EQ(output.record.num_verified, 0) << "every first draft is the forbidden token";
}

TEST(StepLoopMasks, NothingAllowedEndsThatRequestAloneAndSaysWhere) {
  LoopRun run;
  LoopRequest dead_end = loop_request(1, 20, 30);
  dead_end.masks = std::make_unique<RuleMasks>([](int64_t position, TokenId) { return position < 5; });
  LoopRequest failing = loop_request(2, 20, 30);
  failing.masks = std::make_unique<FailingMasks>();
  const SequenceId a = run.submit(std::move(dead_end)), b = run.submit(std::move(failing)),
                   other = run.submit(loop_request(3, 20, 30));
  run.finish();
  EXPECT_EQ(run.output(a).finished, SequenceEnd::kNothingAllowed);
  EXPECT_EQ(run.output(a).tokens.size(), 5u);
  EXPECT_EQ(run.output(a).cause.message(), "no token is allowed at output position 5");
  EXPECT_EQ(run.output(b).finished, SequenceEnd::kNothingAllowed);
  EXPECT_EQ(run.output(b).cause.message(), "the rules of this request are too large");
  EXPECT_EQ(run.output(other).finished, SequenceEnd::kLength);
  EXPECT_EQ(run.output(other).tokens.size(), 30u);
}

TEST(StepLoopMasks, BansHoldWithAndWithoutDrafts) {
  for (const float temperature : {0.0f, 1.0f}) {
    std::vector<TokenId> with_drafts;
    for (const bool drafts : {true, false}) {
      LoopRun run;
      LoopRequest request = repeating(4, 40);
      request.sequence.draft = drafts;
      request.sampling.temperature = temperature;
      request.sampling.logit_bias.push_back({77, 50.0f});  // what comes where the loved one may not
      request.sampling.bad_words = {{kLoved, kLoved, kLoved}};
      request.sampling.eos_ids = {77};
      request.sampling.min_tokens = 12;
      request.sequence.stop_ids = {77};
      const LoopOutput output = run.run(std::move(request));
      EXPECT_EQ(output.finished, SequenceEnd::kStop);
      EXPECT_GE(output.tokens.size(), 13u) << "no end before min_tokens";
      EXPECT_EQ(output.tokens.back(), 77);
      for (size_t i = 2; i < output.tokens.size(); ++i)
        EXPECT_FALSE(output.tokens[i] == kLoved && output.tokens[i - 1] == kLoved && output.tokens[i - 2] == kLoved);
      if (drafts) with_drafts = output.tokens;
      EXPECT_EQ(output.tokens, with_drafts);
    }
  }
}

}  // namespace
}  // namespace deepinfer
