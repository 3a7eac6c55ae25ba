// SPDX-License-Identifier: MIT
#include "serve/loop_generation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "serve/sampling_of.h"
#include "serve/step_loop.h"

namespace deepinfer {
namespace {

StepLoopOptions loop_options(const Engine& engine, const GenerationRequest& request) {
  StepLoopOptions options;
  options.pipelined = false;  // one reader, who sees every token as it comes
  options.scheduler.num_lanes = 1;
  options.scheduler.rows_max = engine.options().rows_max;
  options.mask_wait_ns = 1'000'000'000;  // nobody else is kept waiting
  options.scheduler.context_tokens_max = engine.options().blocks_max * kBlockTokens;
  options.scheduler.num_drafts = std::min(draft_run_max(engine.config()), engine.options().logits_rows_max - 1);
  options.scheduler.has_draft_head = request.drafts && engine.config().draft.num_layers > 0;
  return options;
}

// The engine's room is the answer's bound; a prompt that leaves none is refused.
Status fit(const Engine& engine, const StepLoopOptions& options, GenerationRequest& request) {
  const int64_t num_prompt = static_cast<int64_t>(request.prompt.size());
  if (num_prompt == 0) return invalid_argument("generate: the prompt has no tokens");
  if (request.max_tokens < 1)
    return invalid_argument("generate: max_tokens is " + std::to_string(request.max_tokens) + ", expected at least 1");
  const int64_t longest =
      std::min(options.scheduler.context_tokens_max - options.scheduler.num_drafts, engine.config().context_max);
  if (num_prompt >= longest)
    return invalid_argument("generate: the prompt has " + std::to_string(num_prompt) + " tokens, the engine holds " +
                            std::to_string(longest) + " with the answer");
  request.max_tokens = std::min(request.max_tokens, longest - num_prompt);
  return {};
}

GenerationEnd end_of(SequenceEnd end) {
  if (end == SequenceEnd::kStop) return GenerationEnd::kStop;
  return end == SequenceEnd::kLength ? GenerationEnd::kLength : GenerationEnd::kCancelled;
}

class Recorder {
 public:
  Recorder(StepLoop& loop, const TokenSink& sink) : loop_(loop), sink_(sink) {}

  void take(const LoopUpdate& update) {
    if (!update.refused.ok()) failure_ = update.refused;
    if (!update.cause.ok()) failure_ = update.cause.prefixed("generate");
    Generation& out = recorded_.generation;
    for (size_t i = 0; i < update.tokens.size() && goes_on_; ++i) {
      out.tokens.push_back(update.tokens[i]);
      if (i < update.logprobs.size()) out.logprobs.push_back(update.logprobs[i]);
      goes_on_ = sink_(update.tokens[i]);
      if (!goes_on_ && !update.finished) loop_.cancel(update.id);
    }
    if (!update.finished) return;
    out.end = goes_on_ ? end_of(*update.finished) : GenerationEnd::kCancelled;
    if (update.record) finish(*update.record);
  }

  const Status& failure() const { return failure_; }
  RecordedGeneration result() { return std::move(recorded_); }

 private:
  void finish(const SequenceRecord& record) {
    Generation& out = recorded_.generation;
    recorded_.record = record;
    out.num_steps = record.num_steps - record.num_chunks;
    out.num_drafted = record.num_verified;
    out.num_accepted = record.num_accepted;
    const int64_t first = record.first_token_ns > 0 ? record.first_token_ns : record.finished_ns;
    out.prefill_ns = first - record.admitted_ns;
    out.decode_ns = record.finished_ns - first;
  }

  StepLoop& loop_;
  const TokenSink& sink_;
  Status failure_;
  RecordedGeneration recorded_;
  bool goes_on_ = true;
};

}  // namespace

Result<RecordedGeneration> generate_recorded(Engine& engine, GenerationRequest request, const TokenSink& sink,
                                             std::unique_ptr<MaskSource> masks) {
  const SystemClock clock;
  const StepLoopOptions options = loop_options(engine, request);
  TRY(fit(engine, options, request));
  StepLoop loop(engine, options, clock);
  Recorder recorder(loop, sink);
  LoopRequest asked{.sampling = request.params, .images = std::move(request.images)};
  asked.masks = std::move(masks);
  asked.sequence.prompt = std::move(request.prompt);
  asked.sequence.max_output_tokens = request.max_tokens;
  asked.sequence.stop_ids = ending_ids(request.params);
  asked.sequence.draft = request.drafts;
  asked.sequence.replay = request.replay;
  asked.sequence.use_prefix_cache = false;
  ASSIGN_OR_RETURN(const SequenceId id,
                   loop.submit(std::move(asked), [&](const LoopUpdate& update) { recorder.take(update); }));
  for (bool goes_on = true; goes_on;) {
    if (request.keep_going && !request.keep_going()) loop.cancel(id);
    ASSIGN_OR_RETURN(goes_on, loop.run_or_wait());
  }
  TRY(recorder.failure());
  RecordedGeneration result = recorder.result();
  result.generation.expert_bytes_read = loop.snapshot().expert_bytes_read;
  return result;
}

}  // namespace deepinfer
