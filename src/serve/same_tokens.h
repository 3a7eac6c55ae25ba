// SPDX-License-Identifier: MIT
// Test only: requests served in some way, compared with each of them served by itself - one lane, one thread, no
// drafts, no cache, plenty of blocks. Tokens must be equal, and log probabilities bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "serve/step_loop_runs.h"

namespace deepinfer {

inline int64_t between(Rng& rng, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(rng.below(static_cast<uint64_t>(high - low + 1)));
}

inline SamplingParams random_sampling(Rng& rng) {
  SamplingParams p;
  p.seed = rng.below(1 << 20);
  p.top_logprobs = static_cast<int32_t>(rng.below(4));
  p.temperature = rng.below(4) == 0 ? 0 : 0.3f + rng.uniform();
  if (rng.below(3) == 0) p.top_p = 0.5f + rng.uniform() / 2;
  if (rng.below(3) == 0) p.top_k = static_cast<int32_t>(between(rng, 1, 50));
  if (rng.below(4) == 0) p.min_p = rng.uniform() / 10;
  if (rng.below(4) == 0) p.repetition_penalty = 1 + rng.uniform() / 2;
  if (rng.below(4) == 0) p.presence_penalty = rng.uniform();
  if (rng.below(4) == 0) p.frequency_penalty = rng.uniform();
  if (rng.below(4) == 0) p.logit_bias = {{static_cast<TokenId>(8 + rng.below(490)), 3.f}, {7, -2.f}};
  if (rng.below(4) == 0) p.bad_words = {{static_cast<TokenId>(rng.below(500))}, {1, 2}};
  if (rng.below(4) == 0) p.logprob_source = LogprobSource::kProcessed;
  p.eos_ids = {1};
  p.min_tokens = between(rng, 0, 6);
  p.ignore_eos = rng.below(4) == 0;
  if (rng.below(3) == 0) p.stop_ids = {static_cast<TokenId>(rng.below(500)), static_cast<TokenId>(rng.below(500))};
  return p;
}

inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

inline void expect_same(const LoopOutput& got, const LoopOutput& want, const std::string& where) {
  ASSERT_TRUE(got.refused.ok()) << where << ": " << got.refused.message();
  ASSERT_EQ(got.tokens, want.tokens) << where;
  ASSERT_EQ(got.finished, want.finished) << where;
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size()) << where;
  for (size_t i = 0; i < want.logprobs.size(); ++i) {
    const TokenLogprobs &a = got.logprobs[i], &b = want.logprobs[i];
    ASSERT_TRUE(same_bits(a.logprob, b.logprob)) << where << ", logprob of output " << i;
    ASSERT_EQ(a.likeliest.size(), b.likeliest.size()) << where;
    for (size_t k = 0; k < a.likeliest.size(); ++k)
      ASSERT_TRUE(a.likeliest[k].first == b.likeliest[k].first &&
                  same_bits(a.likeliest[k].second, b.likeliest[k].second))
          << where << ", alternative " << k << " of output " << i;
  }
}

struct Exercised {
  int64_t num_preemptions = 0, num_saved_bytes = 0, num_hit_tokens = 0, num_host_blocks = 0, num_accepted = 0;
  int64_t num_rejected = 0, num_shared_tokens = 0, num_chunks = 0, num_tail_tokens = 0;
  void add(const SequenceRecord& r) {
    num_preemptions += r.num_preemptions;
    num_saved_bytes += r.num_offloaded_bytes;
    num_hit_tokens += r.num_cached_tokens;
    num_host_blocks += r.num_loaded_blocks;
    num_accepted += r.num_accepted;
    num_rejected += r.num_verified - r.num_accepted;
    num_shared_tokens += r.num_shared_tokens;
    num_chunks += r.num_chunks;
    num_tail_tokens += r.num_tail_tokens;
  }
};

// Everything about how requests are served, drawn from one seed.
struct Schedule {
  EngineOptions engine = loop_engine_options();
  StepLoopOptions loop = loop_test_options();
};

class SameTokens {
 public:
  // Request `number`; made anew for every run.
  using MakeRequest = LoopRequest (*)(uint64_t number);

  SameTokens(const LoadedModel& model, MakeRequest make_request, const EngineOptions& alone)
      : model_(model), make_request_(make_request), alone_options_(alone) {}

  const LoopOutput& alone(uint64_t number, uint32_t choice = 0) {
    const auto found = alone_.find({number, choice});
    if (found != alone_.end()) return found->second;
    return alone_.emplace(std::pair(number, choice), run_alone(number, choice)).first->second;
  }

  // Submits `numbers` in that order while steps run, sometimes as several choices, with some that are cancelled among
  // them, and compares every one that ran to its end.
  void check(uint64_t seed, const std::vector<uint64_t>& numbers, Rng& rng, const Schedule& schedule,
             Exercised& exercised) {
    LoopRun run(schedule.loop, schedule.engine, model_);
    std::vector<Submitted> submitted;
    std::vector<SequenceId> cancelled;
    for (const uint64_t number : numbers) {
      const SequenceId first = submit(run, rng, number, 0, {}, submitted);
      if (rng.below(5) == 0)
        for (uint32_t choice = 1; choice <= 1 + rng.below(2); ++choice)
          submit(run, rng, number, choice, first, submitted);
      if (rng.below(8) == 0) {
        cancelled.push_back(submitted[rng.below(submitted.size())].id);
        run.loop->cancel(cancelled.back());
      }
      for (uint64_t steps = rng.below(6); steps-- > 0;) ASSERT_TRUE(run.loop->run_step().ok()) << "seed " << seed;
    }
    run.finish();
    for (const Submitted& s : submitted) {
      const LoopOutput& output = run.output(s.id);
      exercised.add(output.record);
      if (output.finished == SequenceEnd::kCancelled &&
          std::find(cancelled.begin(), cancelled.end(), s.id) != cancelled.end())
        continue;
      expect_same(output, alone(s.number, s.choice),
                  "seed " + std::to_string(seed) + ", request " + std::to_string(s.number) + ", choice " +
                      std::to_string(s.choice));
      if (testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  struct Submitted {
    SequenceId id{};
    uint64_t number = 0;
    uint32_t choice = 0;
  };

  SequenceId submit(LoopRun& run, Rng& rng, uint64_t number, uint32_t choice, std::optional<SequenceId> prompt_of,
                    std::vector<Submitted>& submitted) const {
    LoopRequest request = make_request_(number);
    request.sampling.choice = choice;
    request.sequence.priority = static_cast<int32_t>(rng.below(2));
    request.sequence.draft = rng.below(5) != 0;
    request.sequence.prompt_of = prompt_of;
    submitted.push_back({run.submit(std::move(request)), number, choice});
    return submitted.back().id;
  }

  LoopOutput run_alone(uint64_t number, uint32_t choice) {
    if (!alone_run_) {
      StepLoopOptions options = loop_test_options();
      options.scheduler.num_lanes = 1;
      options.scheduler.num_drafts = 0;
      options.scheduler.rows_max = alone_options_.rows_max;
      options.scheduler.context_tokens_max = alone_options_.context_max;
      options.pipelined = false;
      alone_run_ = std::make_unique<LoopRun>(options, alone_options_, model_);
    }
    LoopRequest request = make_request_(number);
    request.sequence.use_prefix_cache = false;
    request.sampling.choice = choice;
    return alone_run_->run(std::move(request));
  }

  const LoadedModel& model_;
  MakeRequest make_request_;
  EngineOptions alone_options_;
  std::unique_ptr<LoopRun> alone_run_;
  std::map<std::pair<uint64_t, uint32_t>, LoopOutput> alone_;
};

inline std::vector<uint64_t> shuffled(std::vector<uint64_t> numbers, Rng& rng) {
  for (size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[rng.below(i)]);
  return numbers;
}

inline std::vector<uint64_t> numbers_below(uint64_t end) {
  std::vector<uint64_t> numbers(end);
  for (uint64_t i = 0; i < end; ++i) numbers[i] = i;
  return numbers;
}

}  // namespace deepinfer
