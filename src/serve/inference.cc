// SPDX-License-Identifier: MIT
#include "serve/inference.h"

#include <algorithm>

#include "engine/host_room.h"
#include "serve/service_store.h"
#include "serve/step_profile.h"

namespace deepinfer {
namespace {

constexpr int64_t kDefaultContext = 32'768, kDefaultKvTokens = 65'536;
constexpr int64_t kWarmPromptTokens = 96, kWarmOutputTokens = 8;

EngineOptions engine_options(const LoadedModel& model, const Target& target, int num_threads,
                             const InferenceLimits& limits, int64_t context_max) {
  const ModelConfig& config = model.weights->config();
  EngineOptions options;
  options.target = target;
  options.expert_bytes_max = model.expert_bytes_max;
  options.num_threads = num_threads;
  options.has_thread = limits.pipelined;
  options.step_ns_max = limits.step_ns_max;
  options.lanes_max = limits.sequences_max;
  options.rows_max = std::max(limits.rows_max, limits.sequences_max * (draft_run_max(config) + 1));
  options.logits_rows_max = limits.sequences_max * (draft_run_max(config) + 1);
  const int64_t kv_tokens = limits.kv_tokens > 0 ? limits.kv_tokens : std::max(kDefaultKvTokens, 4 * context_max);
  options.blocks_max = BlockTable::blocks_for(std::max(kv_tokens, context_max));
  options.context_max = context_max;
  return options;
}

StepLoopOptions loop_options(const Engine& engine, const InferenceLimits& limits, int64_t context_max) {
  const ModelConfig& config = engine.config();
  StepLoopOptions options;
  options.scheduler.num_lanes = limits.sequences_max;
  options.scheduler.rows_max = std::max(limits.rows_max, limits.sequences_max * (draft_run_max(config) + 1));
  options.scheduler.queue_max = limits.queue_max;
  options.scheduler.context_tokens_max = context_max;
  options.scheduler.num_drafts = draft_run_max(config);
  options.scheduler.has_draft_head = limits.drafts && config.draft.num_layers > 0;
  options.pipelined = limits.pipelined;
  options.ttft_ns_max = limits.ttft_ns_max;
  options.num_host_blocks = BlockTable::blocks_for(limits.host_kv_tokens);
  options.tail_bytes_max = limits.tail_bytes_max;
  // Preempted sequences may keep half as much in host memory as the pool holds.
  options.scheduler.snapshots.bytes_max = engine.options().blocks_max * engine.cache_layout().block_bytes / 2;
  options.checks_invariants = limits.checks_invariants;
  return options;
}

}  // namespace

Inference::~Inference() { stop(); }

Result<std::unique_ptr<Inference>> Inference::open(LoadedModel model, const Target& target, int num_threads,
                                                   const InferenceLimits& limits, const Clock& clock) {
  std::unique_ptr<Inference> inference(new Inference);
  inference->model_ = std::move(model);
  const LoadedModel& loaded = inference->model_;
  const ModelConfig& config = loaded.weights->config();
  const int64_t context_max =
      std::min(config.context_max, limits.context_max > 0 ? limits.context_max : kDefaultContext);
  ASSIGN_OR_RETURN(inference->engine_, Engine::open(loaded.weights, loaded.token_map,
                                                    engine_options(loaded, target, num_threads, limits, context_max)));
  ASSIGN_OR_RETURN(inference->preparer_, RequestPreparer::create(loaded, target, num_threads, context_max));
  StepLoopOptions options = loop_options(*inference->engine_, limits, context_max);
  if (limits.profile_ns_max > 0 && limits.sequences_max > 1) {  // it needs a lane for the prompt and one beside it
    const StepProfileOptions shapes{.num_sequences_max = limits.sequences_max,
                                    .num_drafts = options.scheduler.num_drafts,
                                    .has_draft_head = options.scheduler.has_draft_head,
                                    .ns_max = limits.profile_ns_max};
    ASSIGN_OR_RETURN(StepProfile profile, profile_steps(*inference->engine_, shapes, clock));
    options.scheduler.profile = profile.curve;
  }
  TRY(check_host_room(*inference->engine_, options.num_host_blocks));
  options.scheduler.model_revision = state_revision(*inference->engine_, limits.program_revision + loaded.revision);
  if (limits.store) {
    inference->store_tier_ = std::make_unique<StoreTier>(
        limits.store->blocks(), StoreTierOptions{.block_bytes = inference->engine_->cache_layout().block_bytes,
                                                 .model_revision = options.scheduler.model_revision,
                                                 .cache_format = options.scheduler.cache_format});
    options.store = inference->store_tier_.get();
  }
  auto loop = std::make_unique<StepLoop>(*inference->engine_, options, clock);
  inference->loop_ = loop.get();
  inference->source_ = std::move(loop);
  return inference;
}

Result<std::unique_ptr<Inference>> Inference::around(LoadedModel model, std::unique_ptr<TokenSource> source,
                                                     const Target& target, int64_t context_max) {
  std::unique_ptr<Inference> inference(new Inference);
  inference->model_ = std::move(model);
  ASSIGN_OR_RETURN(inference->preparer_, RequestPreparer::create(inference->model_, target, 1, context_max));
  inference->source_ = std::move(source);
  return inference;
}

Status Inference::start() {
  if (loop_) TRY(warm(*loop_));
  source_->start();
  return {};
}

Status Inference::warm(StepLoop& loop) {
  LoopRequest request;
  const int64_t num_prompt = std::min(kWarmPromptTokens, preparer_->context_max() - kWarmOutputTokens);
  for (int64_t i = 0; i < std::max<int64_t>(num_prompt, 1); ++i)
    request.sequence.prompt.push_back(static_cast<TokenId>(i % config().vocab_size));
  request.sequence.prompt[0] = config().bos_token_id;
  for (TokenId& id : request.sequence.prompt)  // a placeholder without its image is no prompt
    if (id == config().image_token_id) id = config().bos_token_id;
  request.sequence.max_output_tokens = kWarmOutputTokens;
  request.sequence.use_prefix_cache = false;
  request.sampling.temperature = 0;
  Status refused;
  ASSIGN_OR_RETURN([[maybe_unused]] const SequenceId id, loop.submit(std::move(request), [&](const LoopUpdate& update) {
    if (!update.refused.ok()) refused = update.refused;
  }));
  TRY(loop.run_until_idle());
  return refused;
}

void Inference::stop() {
  if (source_) source_->stop();
}

}  // namespace deepinfer
