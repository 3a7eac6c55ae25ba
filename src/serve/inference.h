// SPDX-License-Identifier: MIT
// A loaded model that answers: engine, step loop and request preparer, sized together. Thread: start() and stop() the
// owner's; what it hands out says its own.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "serve/loaded_model.h"
#include "serve/request_preparer.h"
#include "serve/step_loop.h"

namespace deepinfer {

class ServiceStore;

struct InferenceLimits {
  int64_t sequences_max = 16;  // at once
  int64_t queue_max = 1024;    // waiting
  int64_t context_max = 0;     // tokens of one sequence; 0 = the model's, at most 32,768
  int64_t kv_tokens = 0;       // tokens of KV kept for running and cached sequences; 0 = 4 contexts, at least 65,536
  int64_t host_kv_tokens = 0;  // tokens of KV kept in host memory beyond that
  int64_t tail_bytes_max = int64_t{64} << 20;  // of window states at the ends of blocks, in host memory
  int64_t rows_max = 512;                      // of a step
  bool drafts = true;
  ServiceStore* store = nullptr;           // prefixes are kept there and found again; outlives the inference
  std::string program_revision;            // what another program stored is not found
  bool pipelined = true;                   // the next step is planned while one runs
  int64_t step_ns_max = 300'000'000'000;   // a step that takes longer is stopped; 0 = no limit
  int64_t ttft_ns_max = 0;                 // refuse what would wait longer for its first token; 0 = never
  int64_t profile_ns_max = 1'000'000'000;  // for measuring step times before serving; 0 = learn while serving
  bool checks_invariants = false;          // tests
};

class Inference {
 public:
  // Errors: of the engine (memory) and the tokenizer (missing control tokens).
  static Result<std::unique_ptr<Inference>> open(LoadedModel model, const Target& target, int num_threads,
                                                 const InferenceLimits& limits, const Clock& clock);
  // The same around another source of tokens: no engine is opened, engine() must not be called.
  static Result<std::unique_ptr<Inference>> around(LoadedModel model, std::unique_ptr<TokenSource> source,
                                                   const Target& target, int64_t context_max);
  ~Inference();

  // Runs a prompt and some steps, so that the first request finds everything touched; then starts the loop's thread.
  Status start();
  void stop();

  TokenSource& loop() { return *source_; }
  const TokenSource& loop() const { return *source_; }
  RequestPreparer& preparer() { return *preparer_; }
  const Engine& engine() const { return *engine_; }
  const ModelConfig& config() const { return model_.weights->config(); }

 private:
  Inference() = default;
  Status warm(StepLoop& loop);

  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RequestPreparer> preparer_;
  std::unique_ptr<StoreTier> store_tier_;
  std::unique_ptr<TokenSource> source_;
  StepLoop* loop_ = nullptr;  // what source_ is, where the engine is ours
};

}  // namespace deepinfer
