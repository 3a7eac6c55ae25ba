// SPDX-License-Identifier: MIT
// The parts of an engine. Internal to engine*.cc and to tests that look inside.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/lane.h"
#include "engine/step_executor.h"
#include "engram/hasher.h"
#include "model/device_weights.h"
#include "model/expert_residency.h"
#include "model/forward.h"
#include "model/layer_roles.h"
#include "sampler/sampler.h"
#include "scheduler/verify_budget.h"

namespace deepinfer {

// A step between launch() and collect(). launch() copies the batch into it, so the batch may change at once.
struct StepContext {
  Batch batch;                  // block tables of its sequences are read from `blocks`
  std::vector<BlockId> blocks;  // one table after another
  std::vector<Range> tables;    // of each sequence, in `blocks`
  const StepMasks* masks = nullptr;
  StepOutput output;
  Status status;            // not ok: the batch was refused when it began
  bool is_sampled = false;  // sample() was called
  uint64_t last_job = 0;
};

// Where the step under way is; written by the engine's thread, read by whoever waits for it.
struct StepPlace {
  enum class Part { kNone, kBegin, kForward, kSample, kDraft };
  std::atomic<uint64_t> step{0};
  std::atomic<Part> part{Part::kNone};
  std::atomic<int> layer{0};
};

struct Engine::State {
  std::unique_ptr<Device> device;  // null: the host. First, because everything below lies in its memory
  std::shared_ptr<const ModelWeights> weights;
  std::unique_ptr<DeviceWeights> device_weights;  // null on the host
  EngineOptions options;
  LayerRoles roles;
  CacheLayout layout;
  std::unique_ptr<ThreadPool> pool;
  Scratch scratch;
  KernelTable kernels;
  std::unique_ptr<ExpertExchange> exchange;
  std::optional<ExpertResidency> residency;
  std::optional<EngramHasher> hasher;
  std::unique_ptr<Forward> forward;
  std::unique_ptr<Sampler> sampler;
  SystemClock clock;

  Buffer<uint8_t> rings, blocks;
  Buffer<float> tails;
  Buffer<int32_t> block_table, device_block_table;  // the second is empty on the host
  Caches caches;

  // The caller's side: steps launched and not collected, a ring.
  static constexpr int64_t kStepsMax = 3;
  std::array<StepContext, kStepsMax> steps;
  int64_t first_step = 0, num_steps = 0;
  std::vector<bool> is_admitted;  // lanes
  bool is_hung = false;

  // The executor's side.
  std::vector<Lane> lanes;
  std::vector<TokenId> batch_tokens;           // of the step under way, rows of sequences that follow filled in
  std::vector<BatchSequence> batch_sequences;  // the same
  int64_t num_draft_logits_rows = 0;
  const float* draft_logits = nullptr;
  int64_t step_begin_ns = 0, idle_since_ns = 0;
  StepPlace place;

  // Reused by every step.
  std::vector<SequenceRows> sequence_rows;
  std::vector<const bf16*> image_rows;
  std::vector<TokenId> ngrams;
  std::vector<SampleRow> sample_rows;
  std::vector<SampledToken> sampled;
  SurvivalTable survivals;
  VerifyScratch verify_scratch;
  std::vector<int32_t> verify_lengths;

  std::unique_ptr<StepExecutor> executor;  // last: its thread ends before what it uses

  const ModelConfig& config() const { return weights->config(); }
  StepContext& step_at(int64_t i) { return steps[static_cast<size_t>((first_step + i) % kStepsMax)]; }
  ExecutionContext context() { return {pool.get(), &scratch, options.profile, device.get()}; }
  Device& machine() const { return device ? *device : host_device(); }
};

// Jobs of the executor. engine_rows.cc: the rows of a step, those of sequences that follow taken from their lanes; the
// forward pass.
Status run_forward(Engine::State& state, StepContext& step);
// lane_record.cc: the tail that a sequence starts with, and the one that it leaves for others.
Status start_from_tail(Engine::State& state, const BatchSequence& rows);
Status record_tail(Engine::State& state, const BatchSequence& rows, SequenceOutput& output);
// engine_sampling.cc: picks, acceptance and drafting.
Status check_masks(const Engine::State& state, const Batch& batch, const StepMasks& masks);
Status run_sampling(Engine::State& state, StepContext& step);
// The step has taken longer than it may: an error that says where it was stopped.
Status check_time(const Engine::State& state);
std::string describe_place(const Engine::State& state);

}  // namespace deepinfer
