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
#include "sampler/device_sampler.h"
#include "sampler/sampler.h"
#include "scheduler/verify_budget.h"
#include "tensor/span_timer.h"

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
  std::unique_ptr<Device> device;    // null: the host. First, because everything below lies in its memory
  std::unique_ptr<SpanTimer> spans;  // null on the host
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
  std::unique_ptr<DeviceSampler> device_sampler;  // null where the host picks
  SystemClock system_clock;
  const Clock& clock() const { return options.clock ? *options.clock : system_clock; }

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
  int64_t num_host_picks = 0;          // steps that the host's sampler served, though there is one on the device
  std::vector<int32_t> draft_columns;  // sequences of the device's draft that the step's output has; else empty
  int64_t step_begin_ns = 0, idle_since_ns = 0;
  StepPlace place;

  // Reused by every step.
  std::vector<SequenceRows> sequence_rows;
  std::vector<const bf16*> image_rows;
  std::vector<TokenId> ngrams;
  std::vector<SampleRow> sample_rows;
  std::vector<SampledToken> sampled;
  std::vector<DraftRow> draft_rows;
  std::vector<DraftSequence> draft_sequences;
  std::vector<size_t> draft_batch_index;  // of draft_rows, in the batch
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
// One SampleRow per logits row of the batch, in order.
void fill_sample_rows(Engine::State& state, const StepMasks* masks);
// From state.sampled to the step's output.
void settle_rows(Engine::State& state, StepContext& step);
struct DraftRun {
  std::vector<DraftSequence> sequences;
  std::vector<size_t> batch_index;
  std::vector<SequenceOutput*> outputs;
  std::vector<TokenId> previous;
  std::vector<float> confidences;
};
DraftRun plan_drafts(Engine::State& state, StepOutput& step);
void cut_behind_end(Engine::State& state, const DraftRun& run);
bool picks_rows(const Engine::State& state);
// engine_device_picks.cc: the same without logits on the host. False: this step asks for more than the device's tables
// have room for.
Result<bool> pick_on_device(Engine::State& state, StepContext& step);
// The step has taken longer than it may: an error that says where it was stopped.
Status check_time(const Engine::State& state);
std::string describe_place(const Engine::State& state);

}  // namespace deepinfer
