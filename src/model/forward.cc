// SPDX-License-Identifier: MIT
#include "model/forward.h"

#include <algorithm>
#include <string>
#include <utility>

#include "model/forward_state.h"

namespace deepinfer {
namespace {

using State = Forward::State;

std::vector<ExpertMatrices> expert_matrices(const MoeWeights& moe) {
  std::vector<ExpertMatrices> experts;
  for (const ExpertWeights& expert : moe.experts) experts.push_back({expert.w1, expert.w3, expert.w2});
  return experts;
}

RopeSpec rope_spec(const ModelConfig& config, int kind) {
  if (kind == 0) return {.theta = config.rope_theta, .rope_dim = config.rope_dim};
  const RopeScaling& scaling = config.rope_scaling;
  return {config.compress_rope_theta, config.rope_dim,   scaling.factor,
          scaling.beta_fast,          scaling.beta_slow, scaling.original_context};
}

void set_up_rows(State& state) {
  const int64_t rows = state.options.rows_max, pairs = state.config.rope_dim / 2;
  Memory& memory = state.device.memory();
  for (StepRows* step : {&state.all, &state.boundary, &state.decoder})
    *step = StepRows{RowTable(state.layout, rows, state.step_tables),
                     {RopeAngles(memory, rows, pairs), RopeAngles(memory, rows, pairs)},
                     Staged<int32_t>(state.step_tables, 2)};
  for (int s = 0; s < state.roles.num_sources(); ++s) {
    state.groups.emplace_back(rows, state.step_tables);
    state.group_angles.emplace_back(memory, rows, pairs);
  }
  const int64_t look_back = state.hashes_on_device() ? state.parts.hasher->look_back() : 0;
  StagedTables& tables = state.step_tables;
  state.step = {Staged<TokenId>(tables, PerRow{rows}), Staged<int32_t>(tables, PerRow{rows}),
                Staged<int32_t>(tables, state.options.logits_rows_max), Staged<int64_t>(tables, PerRow{rows}),
                Staged<TokenId>(tables, PerRow{rows, look_back})};
  for (int kind = 0; kind < 2; ++kind) {
    std::vector<float> frequencies(static_cast<size_t>(pairs));
    rope_frequencies(rope_spec(state.config, kind), frequencies);
    state.frequencies[kind] = constant_buffer<float>(state.device, frequencies);
  }
}

void set_up_draft(State& state) {
  if (!state.has_draft()) return;
  const int64_t sequences = state.options.draft_sequences_max, rows = sequences * state.config.draft.block_size;
  state.draft_angles = RopeAngles(state.device.memory(), rows, state.config.rope_dim / 2);
  DraftTables& draft = state.draft;
  draft.tokens = Staged<TokenId>(state.draft_tables, PerRow{rows});
  for (Staged<int32_t>* table : {&draft.positions, &draft.lanes, &draft.window_begin, &draft.window_end,
                                 &draft.num_fresh, &draft.block_begin, &draft.head_source})
    *table = Staged<int32_t>(state.draft_tables, PerRow{rows});
  draft.shared_begin = Staged<int32_t>(state.draft_tables, 2);
  state.chain.previous = Staged<TokenId>(state.chain_tables, sequences);
}

void set_up_weights(State& state) {
  for (int l = 0; l < state.roles.num_layers(); ++l) {
    const MoeWeights& moe = state.layer_weights(l).moe;
    state.experts.push_back(expert_matrices(moe));
    state.shared.push_back({{moe.shared.w1, moe.shared.w3, moe.shared.w2}});
  }
  for (const int l : state.config.engram.layers) {
    const Fp8Rows& table = state.weights.layer(l).engram.table;
    state.engram_tables.emplace_back("layers." + std::to_string(l) + ".engram.embed", table.codes, table.scales,
                                     table.num_rows, table.columns);
  }
}

Status check_parts(const Forward::Parts& parts, const ForwardOptions& options, const LayerRoles& roles) {
  const ModelConfig& config = parts.weights.config();
  if (!config.engram.empty() && !parts.hasher)
    return invalid_argument("forward: the model has Engram tables, but no hasher was given");
  if (config.num_streams < 1 || config.num_streams > kStreamsMax)
    return unimplemented("forward: " + std::to_string(config.num_streams) + " residual streams, at most " +
                         std::to_string(kStreamsMax));
  if (roles.ratio_max > kCompressRatioMax)
    return unimplemented("forward: compress ratio " + std::to_string(roles.ratio_max) + ", at most " +
                         std::to_string(kCompressRatioMax));
  if (options.rows_max < 1 || options.logits_rows_max < 1) return invalid_argument("forward: limits below one row");
  return {};
}

// Image rows are gathered into one buffer so that the op sees a table.
Status stage_inputs(State& state, const RowBatch& batch) {
  int32_t num_images = 0;
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    const TokenId token = batch.tokens[static_cast<size_t>(row)];
    if (token < 0 || token >= state.config.vocab_size)
      return invalid_argument("batch: token " + std::to_string(token) + " of a vocabulary of " +
                              std::to_string(state.config.vocab_size));
    state.step.tokens[row] = token;
    const bf16* image = batch.image_rows.empty() ? nullptr : batch.image_rows[static_cast<size_t>(row)];
    if (image && !state.config.vision) return invalid_argument("batch: image rows for a model without a vision part");
    state.step.image_row[row] = image ? num_images : -1;
    Buffer<bf16>& images = state.device.is_host() ? state.work.image_rows : state.work.staged_images;
    if (image) std::copy_n(image, state.config.hidden, &images[num_images++ * state.config.hidden]);
  }
  for (int64_t row = batch.num_rows(); row < state.all.table.num_rows(); ++row) {
    state.step.tokens[row] = batch.tokens[0];
    state.step.image_row[row] = -1;
  }
  if (num_images > 0 && !state.device.is_host())
    state.device.copy(state.work.image_rows.data(), state.work.staged_images.data(),
                      num_images * state.config.hidden * static_cast<int64_t>(sizeof(bf16)));
  return {};
}

// What has changed of the sequences' rows of the block table; mostly a new last block or nothing.
void copy_block_tables(State& state, const RowBatch& batch, const Caches& caches) {
  if (caches.blocks_per_lane == 0) return;
  for (const SequenceRows& sequence : batch.sequences) {
    const int64_t begin = sequence.lane * caches.blocks_per_lane, num = static_cast<int64_t>(sequence.blocks.size());
    int64_t first = num;
    for (int64_t b = num - 1; b >= 0; --b) {
      const int32_t block = static_cast<int32_t>(index(sequence.blocks[static_cast<size_t>(b)]));
      if (caches.block_table[begin + b] == block) continue;
      caches.block_table[begin + b] = block;
      first = b;
    }
    if (caches.device_block_table != caches.block_table)
      state.device.copy(caches.device_block_table + begin + first, caches.block_table + begin + first,
                        (num - first) * static_cast<int64_t>(sizeof(int32_t)));
  }
}

// Where rows let others go nothing is padded: prompts.
bool can_pad(const State& state, const RowBatch& batch) {
  if (state.device.is_host() || !state.options.pads_rows || state.trace || batch.num_rows() == 0) return false;
  return std::ranges::all_of(batch.sequences,
                             [](const SequenceRows& s) { return s.decoder_begin <= s.position_begin; });
}

void fill_groups(State& state, int source) {
  GroupTable& groups = state.groups[static_cast<size_t>(source)];
  groups.fill(state.all.table, state.caches, source);
  if (state.pads) groups.pad(state.all.table);
}

Status count_logits_rows(State& state) {
  state.num_logits_rows = 0;
  for (int64_t s = 0; s < state.all.table.num_sequences(); ++s)
    state.num_logits_rows += state.all.table.sequence(s).num_logits_rows;
  if (state.num_logits_rows > state.options.logits_rows_max)
    return resource_exhausted("batch: " + std::to_string(state.num_logits_rows) + " logits rows, room for " +
                              std::to_string(state.options.logits_rows_max));
  state.num_head_rows =
      state.pads ? padded_size(state.num_logits_rows, state.options.logits_rows_max) : state.num_logits_rows;
  return {};
}

void fill_group_angles(State& state) {
  for (int s = 0; s < state.roles.num_sources(); ++s) {
    const GroupTable& groups = state.groups[static_cast<size_t>(s)];
    fill_angles(state, groups.first_positions(), 1, state.group_angles[static_cast<size_t>(s)]);
  }
}

void fill_row_angles(State& state, StepRows& rows) {
  for (int kind = 0; kind < 2; ++kind) fill_angles(state, rows.table.positions(), kind, rows.angles[kind]);
}

// Draft features: the mean over the streams at a target layer's entry, a column block of `features`.
void capture_features(State& state, int layer) {
  const int target = state.role(layer).target;
  if (target < 0 || !state.has_draft()) return;
  const int64_t rows = state.num_rows(), hidden = state.config.hidden, streams = state.config.num_streams;
  const int64_t width = hidden * static_cast<int64_t>(state.config.draft.target_layers.size());
  state.kernels.stream_collapse(state.context,
                                {.x = {state.work.streams.data(), {rows, streams, hidden}},
                                 .pre = {state.work.mean_weight.data(), {rows, streams}},
                                 .out = {state.work.features.data() + target * hidden, {rows, hidden}, {width, 1}}});
}

// Rows of the decoder table that give logits, in batch order.
void list_logits_rows(State& state) {
  const RowTable& table = state.decoder.table;
  int64_t out = 0;
  for (int64_t s = 0; s < table.num_sequences(); ++s) {
    const Range rows = table.sequence_rows(s);
    const int64_t num = table.sequence(s).num_logits_rows;
    CHECK(num <= rows.size());
    for (int64_t row = rows.end - num; row < rows.end; ++row)
      state.step.logits_source[out++] = static_cast<int32_t>(row);
  }
  while (out < state.num_head_rows) state.step.logits_source[out++] = 0;
}

// The table of the boundary is read only where rows go there.
void select_decoder_rows(State& state) {
  state.decoder.table.select_decoder(state.all.table, RowTable::Windows::kDecoder);
  if (state.pads) state.decoder.table.pad(state.all.table.num_rows());
  state.drops_rows = state.decoder.table.num_rows() < state.all.table.num_rows();
  if (!state.drops_rows) return;
  state.boundary.table.select_decoder(state.all.table, RowTable::Windows::kEncoder);
  state.all.table.dropped_ring_offsets(state.boundary.table, state.step.dropped_offsets);
}

void run_head(State& state) {
  const int64_t rows = state.num_rows(), hidden = state.config.hidden, streams = state.config.num_streams,
                out = state.num_head_rows;
  if (rows == 0 || out == 0) return;
  Workspace& work = state.work;
  state.kernels.stream_collapse(state.context, {.x = {work.streams.data(), {rows, streams, hidden}},
                                                .pre = {work.pre.data(), {rows, streams}},
                                                .out = {work.collapsed.data(), {rows, hidden}}});
  trace_rows(state, state.config.num_layers, "final_h", work.collapsed.data(), {rows, hidden});
  state.kernels.gather_rows(state.context, {.rows = as_bytes(work.collapsed.data(), rows, hidden, hidden),
                                            .source = {state.step.logits_source.on_device(), {out}},
                                            .out = as_writable_bytes(work.final_rows.data(), out, hidden, hidden)});
  state.kernels.norm(state.context, {.x = {work.final_rows.data(), {out, hidden}},
                                     .weight = state.views.norm,
                                     .epsilon = state.config.norm_epsilon,
                                     .out = {work.final_norm.data(), {out, hidden}}});
  trace_rows(state, state.config.num_layers, "final_norm", work.final_norm.data(), {out, hidden});
  state.kernels.linear(state.context, {.x = {work.final_norm.data(), {out, hidden}},
                                       .weight = state.views.head,
                                       .out_f32 = {work.logits.data(), {out, state.config.vocab_size}}});
}

}  // namespace

void fill_angles(State& state, View<const int32_t, dim::tokens> positions, int kind, RopeAngles& angles) {
  angles.num_rows = positions.size[0];
  if (angles.num_rows == 0) return;
  state.kernels.rope_angles(state.context, {.position = positions,
                                            .frequency = {state.frequencies[kind].data(), {angles.num_pairs}},
                                            .cos = {angles.cos.data(), {angles.num_rows, angles.num_pairs}},
                                            .sin = {angles.sin.data(), {angles.num_rows, angles.num_pairs}}});
}

void collapse_and_norm(State& state, const float* pre, const Bf16Vector& weight, int64_t num_rows) {
  if (std::exchange(state.has_input, false)) return;
  const int64_t hidden = state.config.hidden, streams = state.config.num_streams;
  Workspace& work = state.work;
  state.kernels.stream_collapse(state.context, {.x = {work.streams.data(), {num_rows, streams, hidden}},
                                                .pre = {pre, {num_rows, streams}},
                                                .out = {work.collapsed.data(), {num_rows, hidden}}});
  state.kernels.norm(state.context, {.x = {work.collapsed.data(), {num_rows, hidden}},
                                     .weight = weight,
                                     .epsilon = state.config.norm_epsilon,
                                     .out = {work.input.data(), {num_rows, hidden}}});
}

void mix_streams(State& state, int layer, std::string_view site, const StreamMixWeights& mix, int64_t num_rows) {
  const int64_t hidden = state.config.hidden, streams = state.config.num_streams;
  Workspace& work = state.work;
  state.kernels.stream_mix(state.context, {.x = {work.streams.data(), {num_rows, streams, hidden}},
                                           .fn = mix.fn,
                                           .base = mix.base,
                                           .scale = mix.scale,
                                           .norm_epsilon = state.config.norm_epsilon,
                                           .epsilon = state.config.stream_epsilon,
                                           .iterations = state.config.sinkhorn_iterations,
                                           .pre = {work.next_pre.data(), {num_rows, streams}},
                                           .post = {work.post.data(), {num_rows, streams}},
                                           .comb = {work.comb.data(), {num_rows, streams, streams}}});
  if (!state.trace) return;
  trace_rows(state, layer, std::string(site) + ".pre", work.next_pre.data(), {num_rows, streams});
  trace_rows(state, layer, std::string(site) + ".post", work.post.data(), {num_rows, streams});
  trace_rows(state, layer, std::string(site) + ".comb", work.comb.data(), {num_rows, streams, streams});
}

void update_streams(State& state, int64_t num_rows, const Bf16Vector* next_norm) {
  const int64_t hidden = state.config.hidden, streams = state.config.num_streams;
  Workspace& work = state.work;
  const StreamUpdateParams update{.x = {work.streams.data(), {num_rows, streams, hidden}},
                                  .y = {work.output.data(), {num_rows, hidden}},
                                  .post = {work.post.data(), {num_rows, streams}},
                                  .comb = {work.comb.data(), {num_rows, streams, streams}},
                                  .out = {work.streams.data(), {num_rows, streams, hidden}}};
  std::swap(work.next_pre, work.pre);
  state.has_input = next_norm != nullptr;
  if (!next_norm) return state.kernels.stream_update(state.context, update);
  state.kernels.stream_advance(state.context, {.update = update,
                                               .pre = {work.pre.data(), {num_rows, streams}},
                                               .norm_weight = *next_norm,
                                               .norm_epsilon = state.config.norm_epsilon,
                                               .collapsed = {work.collapsed.data(), {num_rows, hidden}},
                                               .input = {work.input.data(), {num_rows, hidden}}});
}

Forward::Forward(std::unique_ptr<State> state) : state_(std::move(state)) {}
Forward::~Forward() = default;

Result<std::unique_ptr<Forward>> Forward::create(const Parts& parts, const CacheLayout& layout,
                                                 const ForwardOptions& options) {
  auto state = std::make_unique<State>(parts, layout, options);
  ASSIGN_OR_RETURN(state->roles, make_layer_roles(state->config));
  TRY(check_parts(parts, options, state->roles));
  set_up_rows(*state);
  set_up_draft(*state);
  TRY(allocate_workspace(*state));
  if (state->hashes_on_device())
    state->device_hasher = DeviceHasher(state->device, *state->parts.hasher, state->config.engram.pad_token_id,
                                        options.rows_max * state->config.engram.rows_per_token());
  TRY(state->device.status());
  set_up_weights(*state);
  return std::unique_ptr<Forward>(new Forward(std::move(state)));
}

Status Forward::begin(const RowBatch& batch, const Caches& caches) {
  State& state = *state_;
  state.rows = nullptr;
  state.caches = caches;
  TRY(state.device.wait_for_mark());  // the tables of the step before have been read
  state.pads = can_pad(state, batch);
  const int64_t rows = state.pads ? padded_size(batch.num_rows(), state.options.rows_max) : batch.num_rows();
  state.step_tables.lay_out(rows);
  TRY(state.all.table.fill(batch, caches));
  if (state.pads) state.all.table.pad(rows);
  TRY(stage_inputs(state, batch));
  TRY(count_logits_rows(state));
  TRY(hash_engram_rows(state, batch));
  copy_block_tables(state, batch, caches);
  select_decoder_rows(state);
  list_logits_rows(state);
  for (StepRows* table : {&state.all, &state.boundary, &state.decoder}) {
    table->shared_begin[0] = 0;
    table->shared_begin[1] = static_cast<int32_t>(table->table.num_rows());
  }
  for (int s = 0; s < state.roles.num_sources(); ++s) fill_groups(state, s);
  state.step_tables.upload();
  if (!state.device.is_host()) TRY(bring_engram_rows(state));
  state.device.mark();
  state.rows = &state.all;
  return {};
}

Status Forward::embed() {
  State& state = *state_;
  state.has_input = false;
  fill_row_angles(state, state.all);
  if (state.drops_rows) fill_row_angles(state, state.boundary);
  fill_row_angles(state, state.decoder);
  fill_group_angles(state);
  if (!state.device_hasher.empty())
    state.device_hasher.run(state.device, state.step.ngrams.on_device(), state.all.table.num_rows(),
                            state.work.device_engram_ids.data());
  const int64_t rows = state.num_rows(), streams = state.config.num_streams;
  state.kernels.embedding(state.context, {.embed = state.views.embed,
                                          .token = {state.step.tokens.on_device(), {rows}},
                                          .image_row = {state.step.image_row.on_device(), {rows}},
                                          .image_rows = {state.work.image_rows.data(),
                                                         {state.config.vision ? rows : 0, state.config.hidden}},
                                          .out = {state.work.streams.data(), {rows, streams, state.config.hidden}}});
  state.device.copy(state.work.pre.data(), state.work.first_pre.data(),
                    rows * streams * static_cast<int64_t>(sizeof(float)));
  return {};
}

// The weight that norms the input of layer + 1, if that follows from the streams as `layer` leaves them.
static const Bf16Vector* norm_behind(const State& state, int layer) {
  const bool follows = layer + 1 < state.config.num_layers && state.role(layer + 1).engram < 0;
  return follows ? &state.layer_weights(layer + 1).attention_norm : nullptr;
}

// next_norm: as update_streams has it.
static Status run_layer_of(State& state, int layer, const Bf16Vector* next_norm) {
  if (state.num_rows() == 0) return {};
  TRY(state.weights.touch_layer(layer));
  const LayerWeights& weights = state.layer_weights(layer);
  capture_features(state, layer);
  mix_streams(state, layer, "hc_attn", weights.attention_mix, state.num_rows());
  collapse_and_norm(state, state.work.pre.data(), weights.attention_norm, state.num_rows());
  run_attention(state, layer);
  const int64_t rows = state.num_rows();  // the last kv source lets some rows go
  if (rows == 0) return {};
  trace_rows(state, layer, "attn_out", state.work.output.data(), {rows, state.config.hidden});
  update_streams(state, rows, &weights.moe_norm);
  return run_moe_sublayer(state, layer, rows, state.rows->table.is_image().data, next_norm);
}

Status Forward::run_layer(int layer) { return run_layer_of(*state_, layer, nullptr); }

Status run_moe_sublayer(State& state, int layer, int64_t num_rows, const uint8_t* image, const Bf16Vector* next_norm) {
  const LayerWeights& weights = state.layer_weights(layer);
  Workspace& work = state.work;
  const int64_t streams = state.config.num_streams;
  trace_rows(state, layer, "x_mid", work.streams.data(), {num_rows, streams, state.config.hidden});
  mix_streams(state, layer, "hc_ffn", weights.moe_mix, num_rows);
  collapse_and_norm(state, work.pre.data(), weights.moe_norm, num_rows);
  TRY(run_experts(state, layer, num_rows, image));
  update_streams(state, num_rows, next_norm);
  trace_rows(state, layer, "x_out", work.streams.data(), {num_rows, streams, state.config.hidden});
  trace_rows(state, layer, "pre_out", work.pre.data(), {num_rows, streams});
  return {};
}

Status Forward::finish() {
  State& state = *state_;
  run_head(state);
  if (state.has_draft() && state.num_rows() > 0) {
    for (int l = state.config.num_layers; l < state.roles.num_layers(); ++l) TRY(state.weights.touch_layer(l));
    run_draft_context(state);
  }
  return {};
}

Status Forward::run_ops() {
  TRY(embed());
  for (int layer = 0; layer < state_->config.num_layers; ++layer) {
    TRY(inject_engram(layer));
    TRY(run_layer_of(*state_, layer, norm_behind(*state_, layer)));
  }
  return finish();
}

Status Forward::run() {
  return run_recorded(*state_, step_shape(*state_), [this] { return run_ops(); });
}

View<const float, dim::rows, dim::vocab> Forward::logits() const {
  State& state = *state_;
  const View<const float, dim::rows, dim::vocab> logits(state.work.logits.data(),
                                                        {state.num_logits_rows, state.config.vocab_size});
  if (state.device.is_host()) return logits;
  state.device.copy(state.work.host_logits.data(), logits.data,
                    logits.num_elements() * static_cast<int64_t>(sizeof(float)));
  static_cast<void>(state.device.wait());  // a fault sticks: wait() tells
  return {state.work.host_logits.data(), logits.size};
}

Status Forward::wait() const { return state_->device.wait(); }

View<bf16, dim::tokens, dim::streams, dim::hidden> Forward::streams() {
  return {state_->work.streams.data(), {state_->num_rows(), state_->config.num_streams, state_->config.hidden}};
}

View<float, dim::tokens, dim::streams> Forward::pre() {
  return {state_->work.pre.data(), {state_->num_rows(), state_->config.num_streams}};
}

int64_t Forward::draft_block() const { return state_->has_draft() ? state_->config.draft.block_size : 0; }
int64_t Forward::num_head_rows() const { return state_->num_head_rows; }
int64_t Forward::padded_drafts(int64_t num) const {
  const bool pads = !state_->device.is_host() && state_->options.pads_rows && !state_->trace;
  return pads ? padded_size(num, state_->options.draft_sequences_max) : num;
}
int64_t Forward::memory_bytes() const { return workspace_bytes(*state_); }
void Forward::set_trace(TraceSink sink) { state_->trace = std::move(sink); }

}  // namespace deepinfer
