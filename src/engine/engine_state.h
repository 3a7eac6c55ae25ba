// SPDX-License-Identifier: MIT
// The parts of an engine. Internal to engine*.cc and to tests that look inside.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/lane.h"
#include "engram/hasher.h"
#include "model/forward.h"
#include "model/layer_roles.h"
#include "sampler/sampler.h"

namespace deepinfer {

// A step between launch() and collect().
struct PendingStep {
  StepOutput output;
  bool is_sampled = false;
};

struct Engine::State {
  std::shared_ptr<const ModelWeights> weights;
  EngineOptions options;
  LayerRoles roles;
  CacheLayout layout;
  std::unique_ptr<ThreadPool> pool;
  Scratch scratch;
  KernelTable kernels;
  std::unique_ptr<ExpertExchange> exchange;
  std::optional<EngramHasher> hasher;
  std::unique_ptr<Forward> forward;
  std::unique_ptr<Sampler> sampler;
  SystemClock clock;

  Buffer<uint8_t> rings, blocks;
  Buffer<float> tails;
  Buffer<int32_t> block_table;
  Caches caches;
  std::vector<Lane> lanes;

  // The step launched last, as sample() needs it.
  std::vector<TokenId> batch_tokens;
  std::vector<BatchSequence> batch_sequences;
  std::deque<PendingStep> pending;
  int64_t num_draft_logits_rows = 0;
  const float* draft_logits = nullptr;

  // Reused by every step.
  std::vector<SequenceRows> sequence_rows;
  std::vector<const bf16*> image_rows;
  std::vector<TokenId> ngrams;
  std::vector<SampleRow> sample_rows;
  std::vector<SampledToken> sampled;

  const ModelConfig& config() const { return weights->config(); }
  ExecutionContext context() { return {pool.get(), &scratch}; }
};

// engine_sampling.cc: acceptance and drafting of the step in `pending.back()`.
Status sample_step(Engine::State& state, const StepMasks* masks);

}  // namespace deepinfer
