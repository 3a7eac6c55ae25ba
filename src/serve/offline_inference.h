// SPDX-License-Identifier: MIT
// A model in the caller's own process, for many prompts at once: request bodies in, results out, steps on the calling
// thread. What `generate --chat-batch` and the engine's C library are made of.
//
// A request is a Chat Completions body (its "model" may be left out), or the same members with "prompt" (plain text,
// continued as it is) or "prompt_token_ids" instead of "messages". "n" choices share their prompt.
//
// A result: {"id", "prompt_token_ids", "cached_tokens", "choices": [{"index", "token_ids", "text",
// "reasoning_content", "tool_calls", "finish_reason", "logprobs": [{"token_id", "logprob", "top": [{"token_id",
// "logprob"}]}], "explain"}]}, or {"id", "error", "param"}. Results come in the order in which requests end.
// Thread: one caller.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "protocol/decode_options.h"
#include "serve/answer_reader.h"
#include "serve/loaded_model.h"
#include "serve/request_preparer.h"
#include "serve/step_loop.h"

namespace deepinfer {

struct OfflineOptions {
  Target target{Backend::kCpu, fastest_cpu_level()};
  std::vector<std::string> exact_ops;  // as in EngineOptions
  bool checks_memory = false;          // the same
  int num_threads = 0;                 // 0 = one per usable CPU
  int64_t sequences_max = 8;           // at once
  int64_t context_max = 0;             // tokens of one sequence; 0 = the model's, at most 32,768
  int64_t kv_tokens = 0;  // kept for running and cached sequences; 0 = enough for `sequences_max` of a context's half
  int64_t host_kv_tokens = 0;                  // kept in host memory beyond that
  int64_t tail_bytes_max = int64_t{64} << 20;  // of window states at the ends of cached blocks
  int64_t snapshot_bytes_max = 0;              // states of preempted sequences; 0 = a share of the pool's size
  bool drafts = true;
  ReplayMode replay = ReplayMode::kFast;
  // Where a request says nothing: seeds come from here, so that a batch can be run again.
  uint64_t default_seed = 0;
};

// Figures of everything that has run so far.
struct OfflineProgress {
  int64_t num_requests = 0, num_done = 0;
  int64_t num_prompt_tokens = 0, num_output_tokens = 0;
};

class OfflineInference {
 public:
  // `clock` outlives the object.
  static Result<std::unique_ptr<OfflineInference>> open(LoadedModel model, const OfflineOptions& options,
                                                        const Clock& clock);
  ~OfflineInference();

  // Never fails: a request that cannot run has a result that says why. `overrides` are put over the request's members.
  uint64_t submit(std::string_view body, const Json::Object& overrides = {});
  void cancel(uint64_t id);  // its result has what there is so far, finish_reason "abort"

  Result<bool> step();  // false when nothing is left to run
  std::optional<Json> take_result();
  const OfflineProgress& progress() const { return progress_; }
  Json describe() const;  // model, limits, kernels, memory
  StepLoop& loop() { return *loop_; }

 private:
  struct Choice {
    SequenceId id{};
    SamplingParams sampling;
    std::unique_ptr<AnswerReader> reader;
    std::vector<TokenId> tokens;
    std::vector<TokenLogprobs> logprobs;
    SequenceRecord record;
    bool is_done = false, is_complete = false;
  };
  struct Item {
    uint64_t id = 0;
    std::vector<TokenId> prompt;
    std::string error, param;
    std::vector<Choice> choices;
    size_t num_done = 0;
    int64_t num_cached_tokens = 0;
    bool is_cancelled = false;
  };

  OfflineInference(LoadedModel model, const OfflineOptions& options) : model_(std::move(model)), options_(options) {}
  Refusal prepare(std::string_view body, const Json::Object& overrides, PreparedRequest& out);
  void start(PreparedRequest prepared, Item& item);
  void take(const LoopUpdate& update, Item& item, Choice& choice);
  void end(Item& item, Choice& choice, SequenceEnd reason);
  void finish(Item& item);
  Json result_of(const Item& item) const;

  LoadedModel model_;
  OfflineOptions options_;
  DecodeOptions decode_options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RequestPreparer> preparer_;
  std::unique_ptr<StepLoop> loop_;
  std::map<uint64_t, std::unique_ptr<Item>> items_;  // not ended
  std::deque<Json> results_;
  OfflineProgress progress_;
  uint64_t next_id_ = 1;
};

}  // namespace deepinfer
