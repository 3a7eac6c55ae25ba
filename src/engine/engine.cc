// SPDX-License-Identifier: MIT
#include "engine/engine.h"

#include <algorithm>
#include <string>

#include "engine/engine_state.h"
#include "kernels/device_profile.h"
#include "model/memory_plan.h"
#include "tensor/guarded_device.h"

namespace deepinfer {
namespace {

using State = Engine::State;

Status check_options(const EngineOptions& options) {
  if (options.num_threads < 0 || options.num_threads > 1024)
    return invalid_argument("engine: num_threads " + std::to_string(options.num_threads));
  const std::pair<const char*, int64_t> limits[] = {{"rows_max", options.rows_max},
                                                    {"logits_rows_max", options.logits_rows_max},
                                                    {"lanes_max", options.lanes_max},
                                                    {"blocks_max", options.blocks_max}};
  for (const auto& [name, value] : limits)
    if (value < 1 || value > (int64_t{1} << 24))
      return invalid_argument(std::string("engine: ") + name + " is " + std::to_string(value) + ", expected 1 to 2^24");
  if (options.expert_bytes_max < 0)
    return invalid_argument("engine: expert_bytes_max " + std::to_string(options.expert_bytes_max));
  if (options.expert_bytes_max > 0 && options.target.backend != Backend::kCpu)
    return invalid_argument("engine: experts are read from files on the CPU only; a device holds all of them");
  return {};
}

Status resolve_kernels(State& state) {
  Target target = state.options.target;
  ASSIGN_OR_RETURN(state.kernels, KernelTable::resolve(target));
  if (state.options.exact_ops.empty()) return {};
  target.is_exact = true;
  ASSIGN_OR_RETURN(const KernelTable exact, KernelTable::resolve(target));
  return state.kernels.take(exact, state.options.exact_ops).prefixed("engine: exact_ops");
}

void allocate_caches(State& state) {
  const EngineOptions& options = state.options;
  const CacheLayout& layout = state.layout;
  const int64_t context = options.context_max > 0 ? options.context_max : options.blocks_max * kBlockTokens;
  Caches& caches = state.caches;
  caches.layout = layout;
  caches.num_lanes = options.lanes_max;
  caches.num_blocks = options.blocks_max;
  caches.blocks_per_lane = layout.sources.empty() ? 0 : BlockTable::blocks_for(context);
  Memory& memory = state.machine().memory();
  const auto named = [](const char* name, auto buffer) {
    const BufferName buffer_name(name);
    return buffer();
  };
  state.rings = named("window rings", [&] {
    return Buffer<uint8_t>(memory, layout.num_layers * options.lanes_max * layout.ring_bytes());
  });
  state.blocks =
      named("blocks of global KV", [&] { return Buffer<uint8_t>(memory, options.blocks_max * layout.block_bytes); });
  state.tails = named("compressor tails", [&] {
    return Buffer<float>(memory, static_cast<int64_t>(layout.sources.size()) * options.lanes_max * layout.tail_slots *
                                     2 * layout.head_dim);
  });
  state.block_table = Buffer<int32_t>(state.machine().staging(), options.lanes_max * caches.blocks_per_lane);
  if (state.device) state.device_block_table = Buffer<int32_t>(memory, state.block_table.size());
  caches.rings = state.rings.data();
  caches.blocks = state.blocks.data();
  caches.tails = state.tails.data();
  caches.block_table = state.block_table.data();
  caches.device_block_table = state.device ? state.device_block_table.data() : state.block_table.data();
}

Status open_forward(State& state) {
  const BufferName name("work buffers");
  ForwardOptions options{.rows_max = state.options.rows_max,
                         .logits_rows_max = state.options.logits_rows_max,
                         .draft_sequences_max = state.options.lanes_max,
                         .score_rounding = state.options.score_rounding,
                         .records_graphs = !state.options.cuda.waits_after_each_op,
                         .pads_rows = !state.options.cuda.waits_after_each_op,
                         .reproduces_published_key_slot = state.options.reproduces_published_key_slot};
  const Forward::Parts parts{*state.weights,
                             state.kernels,
                             state.context(),
                             *state.exchange,
                             state.hasher ? &*state.hasher : nullptr,
                             state.device_weights ? &state.device_weights->views() : nullptr,
                             state.residency ? &*state.residency : nullptr};
  ASSIGN_OR_RETURN(state.forward, Forward::create(parts, state.layout, options));
  return {};
}

Status open_device_sampler(State& state) {
  const EngineOptions& options = state.options;
  if (!state.device || options.picks_on_host) return {};
  const BufferName name("the sampler's buffers");
  ASSIGN_OR_RETURN(state.device_sampler,
                   DeviceSampler::create(*state.device, {.vocab_size = state.config().vocab_size,
                                                         .rows_max = options.logits_rows_max,
                                                         .sequences_max = options.lanes_max,
                                                         .verify_rows_max = options.verify_rows_max,
                                                         .draft_block = state.forward->draft_block()}));
  return {};
}

// In the device's memory where they leave most of it to caches.
EngramTier engram_tier(const State& state, int64_t free_bytes) {
  if (state.options.engram_tier) return *state.options.engram_tier;
  return DeviceWeights::engram_bytes(*state.weights) <= free_bytes / 8 ? EngramTier::kDevice : EngramTier::kFiles;
}

// A profile's times come from points between the ops.
void mark_ops(State& state) {
  std::unique_ptr<StreamMarks> marks = state.options.profile ? StreamMarks::make(*state.device) : nullptr;
  if (!marks) return;
  state.options.profile->device = std::make_shared<DeviceProfile>(state.kernels, std::move(marks));
  state.kernels = DeviceProfile::marked(state.kernels);
}

// Weights are brought over once their place and that of the caches is known to be there.
Status open_device(State& state) {
  if (state.options.target.backend != Backend::kCuda) return {};
  ASSIGN_OR_RETURN(state.device, open_cuda_device(state.options.cuda));
  if (state.options.checks_memory)
    state.device = guard_memory(std::move(state.device), {.checks_each_op = state.options.cuda.waits_after_each_op});
  state.scratch = Scratch(state.device->memory());
  state.spans = SpanTimer::make(*state.device);
  const EngineOptions& options = state.options;
  const int64_t free = state.device->free_bytes();
  const EngramTier engram = engram_tier(state, free);
  const int64_t weights = DeviceWeights::size_bytes(*state.weights, engram);
  const int64_t caches = options.blocks_max * state.layout.block_bytes + options.lanes_max * state.layout.lane_bytes();
  if (weights + caches > free)
    return resource_exhausted("engine: weights take " + bytes_to_string(weights) + ", caches of " +
                              std::to_string(options.blocks_max * kBlockTokens) + " tokens and " +
                              std::to_string(options.lanes_max) + " lanes " + bytes_to_string(caches) + "; " +
                              state.device->describe() + " has " + bytes_to_string(free) +
                              " free. Lower blocks_max or lanes_max, or use more devices.");
  const BufferName name("weights");
  ASSIGN_OR_RETURN(state.device_weights, DeviceWeights::upload(*state.weights, *state.device, engram));
  mark_ops(state);
  return {};
}

Status check_sequence(const State& state, const Batch& batch, const BatchSequence& sequence) {
  const std::string where = "batch: lane " + std::to_string(sequence.lane);
  if (sequence.lane < 0 || sequence.lane >= state.options.lanes_max) return invalid_argument(where + " does not exist");
  if (!state.is_admitted[static_cast<size_t>(sequence.lane)])
    return invalid_argument(where + " has no sequence: admit it first");
  if (!sequence.blocks) return invalid_argument(where + ": no block table");
  if (sequence.tail && (sequence.follows || sequence.position_begin % kBlockPositions != 0))
    return invalid_argument(where + ": a tail in front of position " + std::to_string(sequence.position_begin));
  if (sequence.follows) return {};
  if (sequence.rows.begin < 0 || sequence.rows.end > batch.num_rows() || sequence.rows.empty())
    return invalid_argument(where + ": rows outside the batch");
  if (sequence.position_begin < 0)
    return invalid_argument(where + ": position " + std::to_string(sequence.position_begin));
  return {};
}

// Element by element, so that what the step's vectors hold is used again.
void copy_batch(const Batch& batch, StepContext& step) {
  step.batch.step = batch.step;
  step.batch.tokens.assign(batch.tokens.begin(), batch.tokens.end());
  step.batch.sequences = batch.sequences;
  step.batch.verify_budget = batch.verify_budget;
  step.batch.temperatures.assign(batch.temperatures.begin(), batch.temperatures.end());
  step.batch.foretold_rate = batch.foretold_rate;
  step.blocks.clear();
  step.tables.clear();
  for (BatchSequence& sequence : step.batch.sequences) {
    const std::vector<BlockId>& table = sequence.blocks->blocks();
    const int64_t begin = static_cast<int64_t>(step.blocks.size());
    step.blocks.insert(step.blocks.end(), table.begin(), table.end());
    step.tables.push_back({begin, static_cast<int64_t>(step.blocks.size())});
    sequence.blocks = nullptr;  // the caller's, and may change
  }
}

void start_output(StepContext& step) {
  StepOutput& output = step.output;
  output.step = step.batch.step;
  output.failure = {};
  output.forward_ns = output.sample_ns = output.cpu_ns = output.idle_ns = 0;
  output.experts_read = output.expert_bytes_read = 0;
  output.device_busy_ns = output.device_idle_ns = 0;
  output.sequences.resize(step.batch.sequences.size());
  for (size_t s = 0; s < output.sequences.size(); ++s) {
    SequenceOutput& sequence = output.sequences[s];
    sequence.id = step.batch.sequences[s].id;
    sequence.lane = step.batch.sequences[s].lane;
    sequence.num_rows = sequence.num_verified = sequence.logits_begin = sequence.num_accepted = 0;
    sequence.tokens.clear();
    sequence.logprobs.clear();
    sequence.drafts.clear();
    sequence.confidences.clear();
    sequence.is_finite = sequence.has_allowed_token = true;
    sequence.tail.reset();
    sequence.is_late = false;
  }
}

// Runs a part of a step on the executor's thread, timed; a step that has been stopped does nothing more.
template <typename Part>
void run_part(State& state, StepContext& step, int64_t StepOutput::*part_ns, Part&& part) {
  const int64_t begin_ns = state.clock().monotonic_ns(), begin_cpu_ns = thread_cpu_ns();
  if (state.idle_since_ns > 0) step.output.idle_ns += begin_ns - state.idle_since_ns;
  const ExpertTraffic before = state.residency ? state.residency->traffic() : ExpertTraffic{};
  if (step.status.ok() && step.output.failure.ok()) part();
  if (state.residency) {
    step.output.experts_read += state.residency->traffic().misses - before.misses;
    step.output.expert_bytes_read += state.residency->traffic().bytes_read - before.bytes_read;
  }
  state.idle_since_ns = state.clock().monotonic_ns();
  step.output.*part_ns += state.idle_since_ns - begin_ns;
  step.output.cpu_ns += thread_cpu_ns() - begin_cpu_ns;
  state.place.part = StepPlace::Part::kNone;
}

Status check_images(const LaneStart& start, int64_t hidden) {
  int64_t end = 0;
  for (const LaneImage& image : start.images) {
    const int64_t num_values = image.rows ? image.rows->size() : 0;
    if (image.positions.begin < end || image.positions.empty() || num_values != image.positions.size() * hidden)
      return invalid_argument("admit: an image at positions " + std::to_string(image.positions.begin) + ".." +
                              std::to_string(image.positions.end) + " overlaps, is empty or has " +
                              std::to_string(num_values) + " values instead of rows of " + std::to_string(hidden));
    end = image.positions.end;
  }
  return {};
}

}  // namespace

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  if (!state_->is_hung) return;
  state_->executor->abandon();
  static_cast<void>(state_.release());  // a thread may still be in it, for ever: better lost than pulled away
}

Result<std::unique_ptr<Engine>> Engine::open(std::shared_ptr<const ModelWeights> weights, TokenMap token_map,
                                             const EngineOptions& options) {
  TRY(check_options(options));
  auto state = std::make_unique<State>();
  state->weights = std::move(weights);
  state->options = options;
  const ModelConfig& config = state->config();
  if (state->options.verify_rows_max == 0) state->options.verify_rows_max = draft_run_max(config) + 1;
  ASSIGN_OR_RETURN(state->roles, make_layer_roles(config));
  state->layout = make_cache_layout(config, state->roles, state->options.verify_rows_max);
  TRY(resolve_kernels(*state));
  if (!config.engram.empty()) {
    ASSIGN_OR_RETURN(state->hasher, EngramHasher::make(config.engram, std::move(token_map)));
  }
  int num_threads = options.num_threads;
  if (num_threads == 0 && options.has_thread && num_usable_cpus() >= 4) num_threads = num_usable_cpus() - 1;
  state->pool = std::make_unique<ThreadPool>(num_threads);
  TRY(open_device(*state));
  state->exchange = make_local_expert_exchange();
  if (options.expert_bytes_max > 0) state->residency = ExpertResidency::of(*state->weights, options.expert_bytes_max);
  state->sampler = std::make_unique<Sampler>(config.vocab_size);
  allocate_caches(*state);
  TRY(state->machine().status());
  for (int64_t l = 0; l < options.lanes_max; ++l) {
    state->lanes.emplace_back();
    state->lanes.back().tokens =
        TokenRing(state->hasher ? state->hasher->look_back() : 1, state->options.verify_rows_max);
  }
  state->is_admitted.resize(static_cast<size_t>(options.lanes_max));
  TRY(open_forward(*state));
  TRY(open_device_sampler(*state));
  state->executor = std::make_unique<StepExecutor>(options.has_thread, state->device != nullptr);
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

const ModelConfig& Engine::config() const { return state_->config(); }
const EngineOptions& Engine::options() const { return state_->options; }
const CacheLayout& Engine::cache_layout() const { return state_->layout; }
std::string Engine::describe_kernels() const { return state_->kernels.describe(); }
int64_t Engine::num_steps() const { return state_->num_steps; }

ReplayGeometry Engine::replay_geometry() const {
  return {.window = config().window,
          .num_layers = config().num_layers,
          .num_encoder_layers = state_->roles.num_encoder_layers};
}

int64_t Engine::memory_bytes() const {
  return state_->rings.size_bytes() + state_->blocks.size_bytes() + state_->tails.size_bytes() +
         state_->block_table.size_bytes() + state_->forward->memory_bytes();
}

Status Engine::admit(LaneStart start) {
  State& state = *state_;
  if (start.lane < 0 || start.lane >= state.options.lanes_max)
    return invalid_argument("admit: lane " + std::to_string(start.lane) + " does not exist");
  TRY(check_images(start, state.config().hidden));
  TRY(validate(start.params, state.config().vocab_size));
  state.is_admitted[static_cast<size_t>(start.lane)] = true;
  state.executor->post([&state, start = std::make_shared<LaneStart>(std::move(start))] {
    state.lanes[static_cast<size_t>(start->lane)].start(std::move(*start));
  });
  return {};
}

void Engine::release(int32_t lane) {
  CHECK(lane >= 0 && lane < state_->options.lanes_max);
  state_->is_admitted[static_cast<size_t>(lane)] = false;
  state_->executor->post([state = state_.get(), lane] { state->lanes[static_cast<size_t>(lane)].images.clear(); });
}

Status Engine::launch(const Batch& batch) {
  State& state = *state_;
  if (state.num_steps > 0 && !state.step_at(state.num_steps - 1).is_sampled)
    return invalid_argument("launch: the step before has not been sampled");
  if (state.num_steps == State::kStepsMax) return invalid_argument("launch: collect a step before");
  for (const BatchSequence& sequence : batch.sequences) TRY(check_sequence(state, batch, sequence));
  StepContext& step = state.step_at(state.num_steps);
  copy_batch(batch, step);
  start_output(step);
  step.status = {};
  step.masks = nullptr;
  step.is_sampled = false;
  step.last_job = state.executor->post([&state, &step] {
    state.place.step = step.batch.step;
    state.step_begin_ns = state.clock().monotonic_ns();
    run_part(state, step, &StepOutput::forward_ns, [&] { step.status = run_forward(state, step); });
  });
  if (!state.executor->has_thread()) TRY(step.status);
  ++state.num_steps;
  return {};
}

Status Engine::sample(const StepMasks* masks) {
  State& state = *state_;
  if (state.num_steps == 0 || state.step_at(state.num_steps - 1).is_sampled)
    return invalid_argument("sample: no step has been launched");
  StepContext& step = state.step_at(state.num_steps - 1);
  if (masks) TRY(check_masks(state, step.batch, *masks));
  step.masks = masks;
  step.is_sampled = true;
  step.last_job = state.executor->post([&state, &step] {
    run_part(state, step, &StepOutput::sample_ns, [&] { step.status = run_sampling(state, step); });
  });
  return {};
}

Status Engine::collect(StepOutput& output) {
  State& state = *state_;
  if (state.num_steps == 0 || !state.step_at(0).is_sampled)
    return invalid_argument("collect: no step has been sampled");
  StepContext& step = state.step_at(0);
  std::optional<int64_t> limit_ns;  // a step before this one, and the wait for this one's layer to end, come on top
  if (state.options.step_ns_max > 0) limit_ns = 3 * state.options.step_ns_max;
  if (state.is_hung || !state.executor->wait(step.last_job, limit_ns)) {
    state.is_hung = true;
    return unavailable("engine: the step hangs in " + describe_place(state) + "; nothing more can run");
  }
  std::swap(output, step.output);
  state.first_step = (state.first_step + 1) % State::kStepsMax;
  --state.num_steps;
  return step.status;
}

Result<StepOutput> Engine::collect() {
  StepOutput output;
  TRY(collect(output));
  return output;
}

View<const float, dim::rows, dim::vocab> Engine::logits() const {
  state_->executor->drain();
  state_->machine().make_current();
  return state_->forward->logits();
}

View<const float, dim::rows, dim::vocab> Engine::draft_logits() const {
  state_->executor->drain();
  if (!state_->draft_columns.empty()) {
    state_->machine().make_current();
    return state_->forward->draft_logits_of(state_->draft_columns);
  }
  return {state_->draft_logits, {state_->num_draft_logits_rows, config().vocab_size}};
}

}  // namespace deepinfer
