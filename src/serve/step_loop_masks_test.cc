// SPDX-License-Identifier: MIT
// Masks and bans through the step loop: what a source forbids never comes out, drafts or not, and one sequence's
// trouble is its own. The sources are written out by hand: which token may stand at which output position.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "serve/loop_generation.h"
#include "serve/step_loop_runs.h"

namespace deepinfer {
namespace {

// Allows what `rule(position, id)` says; checks that the loop tells it every token but those of the last step, once
// and in order.
class RuleMasks : public MaskSource {
 public:
  using Rule = std::function<bool(int64_t position, TokenId id)>;
  explicit RuleMasks(Rule rule, std::vector<TokenId>* accepted = nullptr)
      : rule_(std::move(rule)), accepted_(accepted) {}

  Result<std::optional<int64_t>> make_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                            TokenMasks& masks) override {
    for (const TokenId id : settled) {
      if (!rule_(num_accepted_, id)) return internal_error("a token that the mask forbids");
      ++num_accepted_;
      if (accepted_) accepted_->push_back(id);
    }
    for (int64_t row = 0;; ++row) {
      std::ranges::fill(masks.row(row), 0u);
      for (TokenId id = 0; id < static_cast<TokenId>(masks.vocab_size()); ++id)
        if (rule_(num_accepted_ + row, id)) allow(masks.row(row), id);
      if (row == static_cast<int64_t>(drafts.size()) || !is_allowed(masks.row(row), drafts[static_cast<size_t>(row)]))
        return std::optional<int64_t>(row + 1);
    }
  }
  std::optional<int64_t> look_up_masks(std::span<const TokenId>, std::span<const TokenId>, TokenMasks&) override {
    return std::nullopt;
  }

 private:
  Rule rule_;
  std::vector<TokenId>* accepted_;
  int64_t num_accepted_ = 0;
};

class FailingMasks final : public MaskSource {
 public:
  Result<std::optional<int64_t>> make_masks(std::span<const TokenId>, std::span<const TokenId>, TokenMasks&) override {
    return invalid_argument("the rules of this request are too large");
  }
  std::optional<int64_t> look_up_masks(std::span<const TokenId>, std::span<const TokenId>, TokenMasks&) override {
    return std::nullopt;
  }
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
        const size_t num_told = told[i].size();
        EXPECT_EQ(told[i], std::vector<TokenId>(output.tokens.begin(), output.tokens.begin() + num_told));
        EXPECT_GE(num_told + 1 + loop_test_options().scheduler.num_drafts, output.tokens.size());
        if (drafts) alone.push_back(output.tokens);
        EXPECT_EQ(output.tokens, alone[i]) << "rule " << i;
      }
      if (!drafts) continue;
      EXPECT_GT(run.output(ids[1]).record.num_accepted, 10) << "drafts stand between the refusals";
    }
  }
}

// Does nothing until the gate is open, and then needs several calls for a mask.
class SlowMasks final : public RuleMasks {
 public:
  SlowMasks(Rule rule, const std::atomic<bool>& gate, int64_t calls_per_mask)
      : RuleMasks(std::move(rule)), gate_(gate), calls_per_mask_(calls_per_mask) {}
  Result<std::optional<int64_t>> make_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                            TokenMasks& masks) override {
    if (!gate_ || ++num_calls_ % calls_per_mask_ != 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      return std::optional<int64_t>();
    }
    return RuleMasks::make_masks(settled, drafts, masks);
  }

 private:
  const std::atomic<bool>& gate_;
  const int64_t calls_per_mask_;
  int64_t num_calls_ = 0;
};

// Needs longer for its third mask than a generation of one sequence waits inside a step.
class OnceLateMasks final : public RuleMasks {
 public:
  using RuleMasks::RuleMasks;
  Result<std::optional<int64_t>> make_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                            TokenMasks& masks) override {
    if (++num_calls_ == 3) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    return RuleMasks::make_masks(settled, drafts, masks);
  }

 private:
  int num_calls_ = 0;
};

TEST(StepLoopMasks, AGenerationGoesOnAfterAMaskThatWasLate) {
  const auto engine = Engine::open(golden_model().weights, golden_model().token_map, loop_engine_options()).value();
  const RuleMasks::Rule rule = [](int64_t position, TokenId id) { return id % 3 == position % 3; };
  LoopRequest one = repeating(1, 12);
  GenerationRequest request{.prompt = one.sequence.prompt};
  request.params = one.sampling;
  request.max_tokens = 12;
  const RecordedGeneration recorded =
      generate_recorded(
          *engine, std::move(request), [](TokenId) { return true; }, std::make_unique<OnceLateMasks>(rule))
          .value();
  EXPECT_EQ(recorded.generation.tokens.size(), 12u);
  EXPECT_GT(recorded.record.num_steps, 1) << "the end is told with its record";
}

TEST(StepLoopMasks, ALateMaskKeepsItsOwnRequestWaitingAndNobodyElse) {
  const RuleMasks::Rule rule = [](int64_t position, TokenId id) { return id != kLoved || position % 4 != 3; };
  for (const bool pipelined : {true, false}) {
    for (const bool drafts : {true, false}) {
      StepLoopOptions options = loop_test_options();
      options.pipelined = pipelined;
      options.mask_wait_ns = 0;
      const auto request = [&] {
        LoopRequest one = repeating(1, 30);
        one.sequence.draft = drafts;
        return one;
      };
      LoopRequest in_time = request();
      in_time.masks = std::make_unique<RuleMasks>(rule);
      StepLoopOptions patient = options;
      patient.mask_wait_ns = 60'000'000'000;
      const LoopOutput expected = LoopRun(patient).run(std::move(in_time));
      ASSERT_EQ(expected.tokens.size(), 30u);

      LoopRun run(options);
      std::atomic<bool> gate = false;
      LoopRequest slow = request();
      slow.masks = std::make_unique<SlowMasks>(rule, gate, 3);
      const SequenceId late = run.submit(std::move(slow)), plain = run.submit(repeating(2, 60));
      while (!run.output(plain).finished) ASSERT_TRUE(run.loop->run_step().ok());
      EXPECT_EQ(run.output(plain).tokens.size(), 60u) << "went on to its end";
      EXPECT_TRUE(run.output(late).tokens.empty());
      EXPECT_LE(run.loop->snapshot().num_wasted_rows, 2) << "who has no mask is in no step";
      gate = true;
      run.finish();
      EXPECT_EQ(run.output(late).tokens, expected.tokens);
      EXPECT_GE(run.loop->snapshot().num_late_masks, pipelined ? 6 : 1);
    }
  }
}

// The prompt's last row runs again where the first mask was late: for every choice, and behind a prefix hit.
TEST(StepLoopMasks, ALateFirstMaskChangesNoChoice) {
  const RuleMasks::Rule rule = [](int64_t position, TokenId id) { return id % 3 == position % 3; };
  std::vector<std::vector<TokenId>> expected;
  for (const bool is_late : {false, true}) {
    StepLoopOptions options = loop_test_options();
    options.mask_wait_ns = is_late ? 0 : 60'000'000'000;
    LoopRun run(options);
    std::atomic<bool> gate = true;
    for (const int64_t num_prompt : {127, 128, 129, 256}) {
      for (const bool again : {false, true}) {
        std::vector<SequenceId> ids;
        for (int choice = 0; choice < 3; ++choice) {
          LoopRequest request = loop_request(7, num_prompt, 12);
          request.sampling.temperature = 1;
          request.sampling.seed = static_cast<uint64_t>(choice);
          request.sequence.replay = ReplayMode::kExact;
          if (choice > 0) request.sequence.prompt_of = ids[0];
          request.masks = std::make_unique<SlowMasks>(rule, gate, is_late ? 20 : 1);
          ids.push_back(run.submit(std::move(request)));
        }
        run.finish();
        for (const SequenceId id : ids) {
          const std::vector<TokenId>& tokens = run.output(id).tokens;
          ASSERT_EQ(tokens.size(), 12u);
          if (!is_late) {
            expected.push_back(tokens);
            continue;
          }
          EXPECT_EQ(tokens, expected[index(id) - 1]) << "prompt of " << num_prompt << (again ? ", again" : "");
        }
      }
    }
    EXPECT_GE(run.loop->snapshot().num_late_masks, is_late ? 24 : 0);
  }
}

// The rules dictate a stretch of the text, token by token, and say so.
class DictatedMasks final : public RuleMasks {
 public:
  static constexpr int64_t kBegin = 4, kEnd = 24;
  static TokenId dictated(int64_t position) { return static_cast<TokenId>(200 + position); }
  DictatedMasks()
      : RuleMasks([](int64_t position, TokenId id) {
          return position < kBegin || position >= kEnd || id == dictated(position);
        }) {}
  Result<std::optional<int64_t>> make_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                            TokenMasks& masks) override {
    position_ += static_cast<int64_t>(settled.size());
    foretold_.clear();
    for (int64_t p = position_; p >= kBegin && p < kEnd; ++p) foretold_.push_back(dictated(p));
    return RuleMasks::make_masks(settled, drafts, masks);
  }
  std::span<const TokenId> foretold() const override { return foretold_; }

 private:
  int64_t position_ = 0;
  std::vector<TokenId> foretold_;
};

TEST(StepLoopMasks, WhatTheRulesDictateIsDraftedWithAHeadAndWithout) {
  for (const bool pipelined : {true, false}) {
    for (const bool has_head : {true, false}) {
      std::vector<TokenId> expected;
      for (const bool foretells : {false, true}) {
        StepLoopOptions options = loop_test_options();
        options.scheduler.num_drafts = 7;
        options.scheduler.verifies_all = true;  // whatever the clock says of rows and steps
        options.scheduler.has_draft_head = has_head;
        options.pipelined = pipelined;
        options.drafts_foretold = foretells;
        options.mask_wait_ns = 60'000'000'000;
        LoopRun run(options);
        LoopRequest request = loop_request(3, 20, 40);
        request.sampling.temperature = 1;
        request.masks = std::make_unique<DictatedMasks>();
        const LoopOutput output = run.run(std::move(request));
        ASSERT_EQ(output.tokens.size(), 40u);
        for (int64_t p = DictatedMasks::kBegin; p < DictatedMasks::kEnd; ++p)
          EXPECT_EQ(output.tokens[static_cast<size_t>(p)], DictatedMasks::dictated(p));
        if (!foretells) {
          expected = output.tokens;
          EXPECT_TRUE(has_head || output.record.num_accepted == 0);
          continue;
        }
        EXPECT_EQ(output.tokens, expected);
        // Of the 20, one is picked by each step that reaches them, and where a step is planned while another runs the
        // first of them comes without drafts.
        EXPECT_GE(output.record.num_accepted, 20 - 20 / 8 - 2);
        EXPECT_LE(output.record.num_steps, 20 + 20 / 8 + 2);
      }
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
