// SPDX-License-Identifier: MIT
// What the benches of the step loop share: requests as the mini model knows them (words to copy, to reverse and to
// sort), made from a number, and a run of many of them through a loop.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/bench.h"
#include "base/philox.h"
#include "engine/bench_model.h"
#include "protocol/codec.h"
#include "serve/grammar_masks.h"
#include "serve/loaded_model.h"
#include "serve/request_preparer.h"
#include "serve/sampling_of.h"
#include "serve/step_loop.h"
#include "serve/step_profile.h"

namespace deepinfer {

struct LoopBenchSetup {
  int64_t concurrency = 16;
  bool drafts = true;
  bool foretells = true;  // what a grammar nearly dictates is drafted
  bool verifies_all = false, rests_from_drafts = true;
  bool pipelined = true;
  bool has_thread = true;
  bool measures_cpu_time = false;
  int64_t profile_ns_max = 700'000'000;  // the cost curve is measured before
  ReplayMode replay = ReplayMode::kFast;
};

struct LoopBenchResult {
  int64_t wall_ns = 0, num_tokens = 0, num_prompt_tokens = 0;
  int64_t num_decode_runs = 0, num_verified = 0, num_accepted = 0;  // of all sequences
  StepLoopSnapshot loop;
  std::vector<double> errors;  // |predicted / measured - 1| of every step

  double idle_share() const {
    const int64_t all = loop.idle_ns + loop.busy_ns;
    return all > 0 ? static_cast<double>(loop.idle_ns) / static_cast<double>(all) : 0;
  }
  double tokens_per_s() const { return static_cast<double>(num_tokens) * 1e9 / static_cast<double>(wall_ns); }
  double tokens_per_cpu_s() const {
    return static_cast<double>(num_tokens) * 1e9 / static_cast<double>(std::max<int64_t>(1, loop.cpu_ns));
  }
};

class LoopBench {
 public:
  // options.model, or the mini model. `--set steps=FILE` writes a line for every step: at once, decode rows, prompt
  // rows, verified, accepted, predicted and measured ns.
  static Result<std::unique_ptr<LoopBench>> open(const BenchOptions& options) {
    std::unique_ptr<LoopBench> bench(new LoopBench);
    bench->num_threads_ = options.num_threads;
    bench->target_ = bench_target(options);
    if (const auto path = options.extra.find("steps"); path != options.extra.end()) {
      bench->steps_file_.reset(std::fopen(path->second.c_str(), "w"));
      if (!bench->steps_file_) return invalid_argument("--set steps=: cannot write " + path->second);
    }
    ASSIGN_OR_RETURN(bench->model_, load_model(options.model.empty() ? "mini" : options.model));
    ASSIGN_OR_RETURN(bench->preparer_,
                     RequestPreparer::create(bench->model_, {Backend::kCpu, fastest_cpu_level()}, 1, kContext));
    return bench;
  }
  bool is_on_device() const { return target_.backend == Backend::kCuda; }
  const ModelConfig& config() const { return model_.weights->config(); }
  int64_t draft_block() const { return config().draft.num_layers > 0 ? config().draft.block_size : 0; }

  // Request i: the same for every setup.
  Result<LoopRequest> question(int64_t i, int64_t output_max) const {
    const std::string body = fmt::format(
        R"({{"model":"DeepSeek-V4.1-Flash","temperature":0,"messages":[{{"role":"user","content":"{}"}}]}})",
        text_of(i));
    return request_of(body, output_max);
  }
  // Of a Chat Completions body.
  Result<LoopRequest> request_of(const std::string& body, int64_t output_max) const {
    DecodedRequest decoded;
    PreparedRequest prepared;
    if (const Refusal refusal = find_codec("chat")->decode(body, {}, decoded)) return internal_error(refusal->message);
    if (const Refusal refusal = preparer_->prepare(std::move(decoded.chat), prepared))
      return internal_error(refusal->message);
    LoopRequest request;
    request.sampling = prepared.sampling;
    request.masks = grammar_masks(prepared);
    request.sequence.prompt = std::move(prepared.tokens);
    request.sequence.max_output_tokens = output_max;
    request.sequence.stop_ids = ending_ids(prepared.sampling);
    return request;
  }
  Result<std::vector<LoopRequest>> questions(int64_t num, int64_t output_max) const {
    std::vector<LoopRequest> requests;
    for (int64_t i = 0; i < num; ++i) {
      ASSIGN_OR_RETURN(LoopRequest request, question(i, output_max));
      requests.push_back(std::move(request));
    }
    return requests;
  }
  // Tokens that mean nothing: for prompts that only have to be long.
  LoopRequest noise(int64_t i, int64_t num_prompt, int64_t output_max) const {
    Rng rng(static_cast<uint64_t>(i));
    LoopRequest request;
    for (int64_t t = 0; t < num_prompt; ++t)
      request.sequence.prompt.push_back(
          static_cast<TokenId>(100 + rng.below(static_cast<uint64_t>(config().vocab_size) - 300)));
    request.sequence.max_output_tokens = output_max;
    request.sequence.use_prefix_cache = false;
    request.sampling.temperature = 0;
    return request;
  }

  // Runs the requests to their end, `setup.concurrency` at once.
  Result<LoopBenchResult> run(const LoopBenchSetup& setup, std::vector<LoopRequest> requests) {
    ASSIGN_OR_RETURN(const auto engine, open_engine(setup));
    ASSIGN_OR_RETURN(const StepLoopOptions options, loop_options(setup, *engine));
    StepLoop loop(*engine, options, clock_);
    LoopBenchResult result;
    Status refused;
    for (LoopRequest& request : requests) {
      request.sequence.replay = setup.replay;
      result.num_prompt_tokens += static_cast<int64_t>(request.sequence.prompt.size());
      const auto id = loop.submit(std::move(request), [&](const LoopUpdate& update) {
        if (!update.refused.ok()) refused = update.refused;
        result.num_tokens += static_cast<int64_t>(update.tokens.size());
        if (update.record) add_record(*update.record, result);
      });
      if (!id.ok()) return id.status();
    }
    const int64_t begin_ns = clock_.monotonic_ns();
    for (int64_t num_steps = 0;;) {
      ASSIGN_OR_RETURN(const bool goes_on, loop.run_or_wait());
      result.loop = loop.snapshot();
      if (!goes_on) break;
      if (result.loop.num_steps == num_steps) continue;
      if (steps_file_) note_step(setup, result.loop);
      num_steps = result.loop.num_steps;
      result.errors.push_back(std::abs(
          static_cast<double>(result.loop.last_predicted_ns) / static_cast<double>(result.loop.last_step_ns) - 1));
    }
    result.wall_ns = clock_.monotonic_ns() - begin_ns;
    TRY(refused);
    return result;
  }

 private:
  static constexpr int64_t kContext = 2048;

  LoopBench() = default;

  Result<std::unique_ptr<Engine>> open_engine(const LoopBenchSetup& setup) const {
    EngineOptions options;
    options.num_threads = num_threads_;
    options.has_thread = setup.has_thread;
    options.target = target_;
    options.lanes_max = setup.concurrency;
    options.logits_rows_max = setup.concurrency * (1 + draft_run_max(config()));
    options.rows_max = std::max<int64_t>(512, options.logits_rows_max);
    options.blocks_max = BlockTable::blocks_for(kContext) * std::min<int64_t>(setup.concurrency, 16) + 64;
    options.context_max = kContext;
    return Engine::open(model_.weights, model_.token_map, options);
  }

  Result<StepLoopOptions> loop_options(const LoopBenchSetup& setup, Engine& engine) const {
    StepLoopOptions options;
    options.pipelined = setup.pipelined;
    options.measures_cpu_time = setup.measures_cpu_time;
    options.scheduler.num_lanes = setup.concurrency;
    options.scheduler.rows_max = engine.options().rows_max;
    options.scheduler.context_tokens_max = kContext;
    options.scheduler.num_drafts = draft_run_max(config());
    options.scheduler.has_draft_head = setup.drafts && draft_block() > 0;
    options.drafts_foretold = setup.foretells;
    options.scheduler.verifies_all = setup.verifies_all;
    options.scheduler.rests_from_drafts = setup.rests_from_drafts;
    const StepProfileOptions shapes{.num_sequences_max = setup.concurrency,
                                    .num_drafts = options.scheduler.num_drafts,
                                    .has_draft_head = options.scheduler.has_draft_head,
                                    .measures_cpu_time = setup.measures_cpu_time,
                                    .ns_max = setup.profile_ns_max};
    ASSIGN_OR_RETURN(StepProfile profile, profile_steps(engine, shapes, clock_));
    options.scheduler.profile = profile.curve;
    return options;
  }

  // What the last step added to the counts.
  void note_step(const LoopBenchSetup& setup, const StepLoopSnapshot& now) {
    if (now.num_steps == 1) before_ = {};
    fmt::print(steps_file_.get(), "{} {} {} {} {} {} {}\n", setup.concurrency,
               now.num_decode_rows - before_.num_decode_rows, now.num_prompt_rows - before_.num_prompt_rows,
               now.num_verified_drafts - before_.num_verified_drafts,
               now.num_accepted_drafts - before_.num_accepted_drafts, now.last_predicted_ns, now.last_step_ns);
    before_ = now;
  }

  static void add_record(const SequenceRecord& record, LoopBenchResult& result) {
    result.num_decode_runs += record.num_steps - record.num_chunks;
    result.num_verified += record.num_verified;
    result.num_accepted += record.num_accepted;
  }

  static std::string text_of(int64_t i) {
    static constexpr const char* kWords[] = {"apple", "river", "stone", "green", "house", "cloud", "table", "music",
                                             "light", "paper", "horse", "bread", "water", "chair", "night", "garden"};
    Rng rng(static_cast<uint64_t>(i) + 1);
    const auto words = [&](uint64_t num) {
      std::string text;
      for (uint64_t w = 0; w < num; ++w) text += (w ? " " : "") + std::string(kWords[rng.below(std::size(kWords))]);
      return text;
    };
    switch (i % 4) {
      case 0: return "Repeat this text exactly: " + words(15 + rng.below(35));
      case 1: return "Reverse the order of these words: " + words(6 + rng.below(7));
      case 2: return "Sort these words alphabetically: " + words(5 + rng.below(4));
      default: return "Copy this: " + words(8 + rng.below(5));
    }
  }

  int num_threads_ = 1;
  Target target_;
  SystemClock clock_;
  LoadedModel model_;
  std::unique_ptr<RequestPreparer> preparer_;
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> steps_file_;
  StepLoopSnapshot before_;  // the step noted last
};

inline double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

}  // namespace deepinfer
