// SPDX-License-Identifier: MIT
#include "engine/engine.h"

#include <algorithm>
#include <string>

#include "engine/engine_state.h"

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
  return {};
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
  state.rings = Buffer<uint8_t>(layout.num_layers * options.lanes_max * layout.ring_bytes());
  state.blocks = Buffer<uint8_t>(options.blocks_max * layout.block_bytes);
  state.tails = Buffer<float>(static_cast<int64_t>(layout.sources.size()) * options.lanes_max * layout.tail_slots * 2 *
                              layout.head_dim);
  state.block_table = Buffer<int32_t>(options.lanes_max * caches.blocks_per_lane);
  caches.rings = state.rings.data();
  caches.blocks = state.blocks.data();
  caches.tails = state.tails.data();
  caches.block_table = state.block_table.data();
}

Status open_forward(State& state) {
  ForwardOptions options{.rows_max = state.options.rows_max,
                         .logits_rows_max = state.options.logits_rows_max,
                         .draft_sequences_max = state.options.lanes_max,
                         .score_rounding = state.options.score_rounding,
                         .reproduces_published_key_slot = state.options.reproduces_published_key_slot};
  const Forward::Parts parts{*state.weights, state.kernels, state.context(), *state.exchange,
                             state.hasher ? &*state.hasher : nullptr};
  ASSIGN_OR_RETURN(state.forward, Forward::create(parts, state.layout, options));
  return {};
}

Status check_sequence(const State& state, const Batch& batch, const BatchSequence& sequence) {
  const std::string where = "batch: lane " + std::to_string(sequence.lane);
  if (sequence.lane < 0 || sequence.lane >= state.options.lanes_max) return invalid_argument(where + " does not exist");
  if (!state.lanes[static_cast<size_t>(sequence.lane)].is_active)
    return invalid_argument(where + " has no sequence: admit it first");
  if (!sequence.blocks) return invalid_argument(where + ": no block table");
  if (sequence.rows.begin < 0 || sequence.rows.end > batch.num_rows() || sequence.rows.empty())
    return invalid_argument(where + ": rows outside the batch");
  if (sequence.position_begin < 0)
    return invalid_argument(where + ": position " + std::to_string(sequence.position_begin));
  return {};
}

std::span<const TokenId> tokens_of(const Batch& batch, const BatchSequence& sequence) {
  return std::span(batch.tokens)
      .subspan(static_cast<size_t>(sequence.rows.begin), static_cast<size_t>(sequence.rows.size()));
}

Status build_rows(State& state, const Batch& batch) {
  const int64_t hidden = state.config().hidden;
  state.sequence_rows.clear();
  state.image_rows.assign(batch.tokens.size(), nullptr);
  state.ngrams.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    TRY(check_sequence(state, batch, sequence));
    const Lane& lane = state.lanes[static_cast<size_t>(sequence.lane)];
    const RowLimits& limits = sequence.limits;
    state.sequence_rows.push_back({sequence.lane, sequence.rows, sequence.position_begin, sequence.blocks->blocks(),
                                   sequence.num_logits_rows, limits.decoder_begin, limits.window_begin,
                                   limits.decoder_window_begin, limits.global_kv_begin});
    for (int64_t i = 0; i < sequence.rows.size() && !lane.images.empty(); ++i)
      state.image_rows[static_cast<size_t>(sequence.rows.begin + i)] =
          lane.image_row(sequence.position_begin + i, hidden);
    if (state.hasher)
      TRY(append_ngrams(lane, sequence, tokens_of(batch, sequence), state.hasher->look_back(), state.ngrams));
  }
  return {};
}

void remember_rows(State& state, const Batch& batch) {
  if (!state.hasher) return;
  for (const BatchSequence& sequence : batch.sequences)
    remember_tokens(state.lanes[static_cast<size_t>(sequence.lane)], sequence, tokens_of(batch, sequence),
                    state.hasher->look_back());
}

void start_output(State& state, const Batch& batch) {
  PendingStep step;
  step.output.step = batch.step;
  int64_t logits_begin = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    SequenceOutput output;
    output.id = sequence.id;
    output.lane = sequence.lane;
    output.logits_begin = logits_begin;
    logits_begin += sequence.num_logits_rows;
    step.output.sequences.push_back(std::move(output));
  }
  state.batch_tokens.assign(batch.tokens.begin(), batch.tokens.end());
  state.batch_sequences.assign(batch.sequences.begin(), batch.sequences.end());
  state.pending.push_back(std::move(step));
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
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(std::shared_ptr<const ModelWeights> weights, TokenMap token_map,
                                             const EngineOptions& options) {
  TRY(check_options(options));
  auto state = std::make_unique<State>();
  state->weights = std::move(weights);
  state->options = options;
  const ModelConfig& config = state->config();
  if (state->options.verify_rows_max == 0) state->options.verify_rows_max = config.draft.block_size + 1;
  ASSIGN_OR_RETURN(state->roles, make_layer_roles(config));
  state->layout = make_cache_layout(config, state->roles, state->options.verify_rows_max);
  ASSIGN_OR_RETURN(state->kernels, KernelTable::resolve(options.target));
  if (!config.engram.empty()) {
    ASSIGN_OR_RETURN(state->hasher, EngramHasher::make(config.engram, std::move(token_map)));
  }
  state->pool = std::make_unique<ThreadPool>(options.num_threads);
  state->exchange = make_local_expert_exchange();
  state->sampler = std::make_unique<Sampler>(config.vocab_size);
  allocate_caches(*state);
  for (int64_t l = 0; l < options.lanes_max; ++l) {
    state->lanes.emplace_back();
    state->lanes.back().tokens =
        TokenRing(state->hasher ? state->hasher->look_back() : 1, state->options.verify_rows_max);
  }
  TRY(open_forward(*state));
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

const ModelConfig& Engine::config() const { return state_->config(); }
const EngineOptions& Engine::options() const { return state_->options; }
const CacheLayout& Engine::cache_layout() const { return state_->layout; }
std::string Engine::describe_kernels() const { return state_->kernels.describe(); }
ThreadPool& Engine::thread_pool() { return *state_->pool; }

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
  Lane& lane = state.lanes[static_cast<size_t>(start.lane)];
  lane.is_active = true;
  lane.keeps_history = needs_history(start.params);
  lane.params = std::move(start.params);
  lane.history = TokenHistory();
  if (lane.keeps_history) {
    lane.history.append_prompt(start.prompt);
    for (const TokenId token : start.output) lane.history.append_output(token);
  }
  lane.num_output_tokens = static_cast<int64_t>(start.output.size());
  lane.images = std::move(start.images);
  lane.tokens.clear();
  return {};
}

void Engine::release(int32_t lane) {
  CHECK(lane >= 0 && lane < state_->options.lanes_max);
  Lane& state = state_->lanes[static_cast<size_t>(lane)];
  state.is_active = false;
  state.images.clear();
}

Status Engine::launch(const Batch& batch) {
  State& state = *state_;
  if (!state.pending.empty() && !state.pending.back().is_sampled)
    return invalid_argument("launch: the step before has not been sampled");
  const int64_t begin_ns = state.clock.monotonic_ns();
  TRY(build_rows(state, batch));
  TRY(state.forward->begin({.tokens = batch.tokens,
                            .sequences = state.sequence_rows,
                            .image_rows = state.image_rows,
                            .ngrams = state.ngrams},
                           state.caches));
  remember_rows(state, batch);
  TRY(state.forward->run());
  start_output(state, batch);
  state.num_draft_logits_rows = 0;
  state.pending.back().output.forward_ns = state.clock.monotonic_ns() - begin_ns;
  return {};
}

Status Engine::sample(const StepMasks* masks) {
  State& state = *state_;
  if (state.pending.empty() || state.pending.back().is_sampled)
    return invalid_argument("sample: no step has been launched");
  const int64_t begin_ns = state.clock.monotonic_ns();
  TRY(sample_step(state, masks));
  state.pending.back().is_sampled = true;
  state.pending.back().output.sample_ns = state.clock.monotonic_ns() - begin_ns;
  return {};
}

Result<StepOutput> Engine::collect() {
  State& state = *state_;
  if (state.pending.empty() || !state.pending.front().is_sampled)
    return invalid_argument("collect: no step has been sampled");
  StepOutput output = std::move(state.pending.front().output);
  state.pending.pop_front();
  return output;
}

View<const float, dim::rows, dim::vocab> Engine::logits() const { return state_->forward->logits(); }

View<const float, dim::rows, dim::vocab> Engine::draft_logits() const {
  return {state_->draft_logits, {state_->num_draft_logits_rows, config().vocab_size}};
}

}  // namespace deepinfer
