// SPDX-License-Identifier: MIT
// Test only: requests through a step loop, on golden model A where no other is named, run to their end on the calling
// thread.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "serve/loaded_model.h"
#include "serve/step_loop.h"

namespace deepinfer {

struct LoopOutput {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::optional<SequenceEnd> finished;
  Status refused, cause;
  SequenceRecord record;
};

inline const LoadedModel& golden_model() {
  static const LoadedModel model = load_model(DEEPINFER_TESTDATA "/model_a").value();
  return model;
}

inline EngineOptions loop_engine_options() {
  EngineOptions options;
  options.num_threads = 1;
  options.target = {Backend::kCpu, fastest_cpu_level()};
  options.rows_max = 128;
  options.logits_rows_max = 128;
  options.lanes_max = 8;
  options.blocks_max = 64;
  options.context_max = 1024;
  return options;
}

inline StepLoopOptions loop_test_options() {
  StepLoopOptions options;
  options.scheduler.num_lanes = 8;
  options.scheduler.rows_max = 128;
  options.scheduler.context_tokens_max = 1024;
  options.scheduler.num_drafts = golden_model().weights->config().draft.block_size;
  options.scheduler.rests_from_drafts = false;  // by the clock, which decides no test
  options.checks_invariants = true;
  return options;
}

inline std::vector<TokenId> random_prompt(uint64_t seed, int64_t length) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  while (static_cast<int64_t>(tokens.size()) < length) tokens.push_back(static_cast<TokenId>(rng.below(500)));
  return tokens;
}

// A greedy request for `num_output` tokens.
inline LoopRequest loop_request(uint64_t seed, int64_t num_prompt, int64_t num_output) {
  LoopRequest request;
  request.sequence.prompt = random_prompt(seed, num_prompt);
  request.sequence.max_output_tokens = num_output;
  request.sampling.temperature = 0;
  request.sampling.seed = seed;
  return request;
}

class LoopRun {
 public:
  explicit LoopRun(const StepLoopOptions& options = loop_test_options(),
                   const EngineOptions& engine_options = loop_engine_options(),
                   const LoadedModel& model = golden_model()) {
    auto engine = Engine::open(model.weights, model.token_map, engine_options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(engine).value();
    loop = std::make_unique<StepLoop>(*engine_, options, clock_);
  }

  SequenceId submit(LoopRequest request) {
    const size_t at = outputs_.size();
    outputs_.push_back(std::make_unique<LoopOutput>());
    LoopOutput& output = *outputs_[at];
    auto id = loop->submit(std::move(request), [&output](const LoopUpdate& update) {
      EXPECT_FALSE(output.finished) << "news after the end";
      output.tokens.insert(output.tokens.end(), update.tokens.begin(), update.tokens.end());
      output.logprobs.insert(output.logprobs.end(), update.logprobs.begin(), update.logprobs.end());
      output.finished = update.finished;
      output.refused = update.refused;
      output.cause = update.cause;
      if (update.record) output.record = *update.record;
    });
    EXPECT_TRUE(id.ok());
    by_id_[index(*id)] = at;
    return *id;
  }
  void finish() {
    const Status status = loop->run_until_idle();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // One request, alone in the loop from now on.
  LoopOutput run(LoopRequest request) {
    const SequenceId id = submit(std::move(request));
    finish();
    return output(id);
  }
  const LoopOutput& output(SequenceId id) const { return *outputs_[by_id_.at(index(id))]; }
  Engine& engine() { return *engine_; }

 private:
  SystemClock clock_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<LoopOutput>> outputs_;
  std::map<uint64_t, size_t> by_id_;

 public:
  std::unique_ptr<StepLoop> loop;  // goes before what it uses
};

}  // namespace deepinfer
