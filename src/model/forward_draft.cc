// SPDX-License-Identifier: MIT
// The draft head (model.md 3.13, dspark-vision.md 1.3-1.5): context rows from the target's features, one parallel pass
// over the block, then the Markov chain position by position.
#include <algorithm>
#include <cmath>
#include <string>

#include "model/forward_state.h"

namespace deepinfer {
namespace {

using State = Forward::State;

// Block rows stand sequence by sequence: [anchor, noise, noise, ...] at positions P, P+1, ... Rows of the head stand
// position by position, [block, sequences], so that one step of the chain is one run of rows.
void fill_draft_tables(State& state, std::span<const DraftSequence> sequences) {
  DraftTables& draft = state.draft;
  const ModelConfig& config = state.config;
  const int64_t block = config.draft.block_size, num = static_cast<int64_t>(sequences.size());
  for (int64_t s = 0; s < num; ++s) {
    const DraftSequence& sequence = sequences[static_cast<size_t>(s)];
    for (int64_t i = 0; i < block; ++i) {
      const int64_t row = s * block + i;
      draft.tokens[row] = i == 0 ? sequence.anchor : config.draft.noise_token_id;
      draft.positions[row] = static_cast<int32_t>(sequence.position + i);
      draft.lanes[row] = sequence.lane;
      draft.window_begin[row] = static_cast<int32_t>(sequence.window_begin);
      draft.window_end[row] = static_cast<int32_t>(sequence.position);
      draft.num_fresh[row] = 0;
      draft.block_begin[row] = static_cast<int32_t>(s * block);
      draft.head_source[i * num + s] = static_cast<int32_t>(row);
    }
  }
  draft.shared_begin[0] = 0;
  draft.shared_begin[1] = static_cast<int32_t>(num * block);
}

void stage_block(State& state) {
  const ModelConfig& config = state.config;
  const int64_t rows = state.num_draft_rows, streams = config.num_streams;
  fill_angles(state, {state.draft.positions.on_device(), {rows}}, 0, state.draft_angles);
  state.kernels.embedding(state.context, {.embed = state.views.embed,
                                          .token = {state.draft.tokens.on_device(), {rows}},
                                          .out = {state.work.streams.data(), {rows, streams, config.hidden}}});
  state.device.copy(state.work.pre.data(), state.work.first_pre.data(),
                    rows * streams * static_cast<int64_t>(sizeof(float)));
}

// Keys: the ring below the anchor, then all rows of the own block. The block's keys are never stored.
void attend_block(State& state, int layer) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const int64_t rows = state.num_draft_rows;
  trace_rows(state, layer, "attn_in", work.input.data(), {rows, config.hidden});
  project_window_keys(state, layer, work.input.data(), rows, state.draft_angles,
                      {.base = work.fresh.data(), .stride_bytes = state.layout.window_row_bytes});
  project_queries(state, layer, rows, state.draft_angles);
  state.kernels.sparse_attention(state.context, {.q = {work.q.data(), {rows, config.num_heads, config.head_dim}},
                                                 .sink = state.layer_weights(layer).attention.sink,
                                                 .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                                                 .window = config.window,
                                                 .lane = {state.draft.lanes.on_device(), {rows}},
                                                 .window_end = {state.draft.window_end.on_device(), {rows}},
                                                 .window_begin = {state.draft.window_begin.on_device(), {rows}},
                                                 .num_fresh = {state.draft.num_fresh.on_device(), {rows}},
                                                 .fresh = {work.fresh.data(), {rows, state.layout.window_row_bytes}},
                                                 .ring = state.caches.ring(layer),
                                                 .block_rows = config.draft.block_size,
                                                 .block_begin = {state.draft.block_begin.on_device(), {rows}},
                                                 .out = {work.o.data(), {rows, config.num_heads, config.head_dim}}});
  trace_rows(state, layer, "attn_o", work.o.data(), {rows, config.num_heads, config.head_dim});
  project_output(state, layer, rows, state.draft_angles);
  trace_rows(state, layer, "attn_out", work.output.data(), {rows, config.hidden});
}

Status run_draft_layer(State& state, int layer) {
  TRY(state.weights.touch_layer(layer));
  const LayerWeights& weights = state.layer_weights(layer);
  const int64_t rows = state.num_draft_rows, streams = state.config.num_streams;
  trace_rows(state, layer, "x_in", state.work.streams.data(), {rows, streams, state.config.hidden});
  mix_streams(state, layer, "hc_attn", weights.attention_mix, rows);
  collapse_and_norm(state, state.work.pre.data(), weights.attention_norm, rows);
  attend_block(state, layer);
  update_streams(state, rows, &weights.moe_norm);
  return run_moe_sublayer(state, layer, rows, nullptr, nullptr);
}

void run_draft_head(State& state) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const int64_t rows = state.num_draft_rows, hidden = config.hidden, streams = config.num_streams;
  state.kernels.stream_collapse(state.context, {.x = {work.streams.data(), {rows, streams, hidden}},
                                                .pre = {work.pre.data(), {rows, streams}},
                                                .out = {work.collapsed.data(), {rows, hidden}}});
  trace_rows(state, state.roles.num_layers(), "draft_h", work.collapsed.data(), {rows, hidden});
  state.kernels.gather_rows(state.context, {.rows = as_bytes(work.collapsed.data(), rows, hidden, hidden),
                                            .source = {state.draft.head_source.on_device(), {rows}},
                                            .out = as_writable_bytes(work.final_rows.data(), rows, hidden, hidden)});
  state.kernels.norm(state.context, {.x = {work.final_rows.data(), {rows, hidden}},
                                     .weight = state.views.draft.norm,
                                     .epsilon = config.norm_epsilon,
                                     .out = {work.final_norm.data(), {rows, hidden}}});
  state.kernels.linear(state.context, {.x = {work.final_norm.data(), {rows, hidden}},
                                       .weight = state.views.head,
                                       .out_f32 = {work.draft_logits.data(), {rows, config.vocab_size}}});
}

// Markov rows of the tokens before, alone and behind the rows of position i.
void gather_chain_inputs(State& state, int64_t i) {
  Workspace& work = state.work;
  const int64_t num = state.num_draft_sequences, rank = state.config.draft.markov_rank, hidden = state.config.hidden,
                width = hidden + rank;
  const Bf16Matrix& embed = state.views.draft.markov_embed;
  const View<const int32_t, dim::entries> previous(state.chain.previous.on_device(), {num});
  const auto markov = as_bytes(embed.data, embed.out, rank, rank);
  state.kernels.gather_rows(
      state.context,
      {.rows = markov, .source = previous, .out = as_writable_bytes(work.markov.data(), num, rank, rank)});
  state.kernels.gather_rows(state.context,
                            {.rows = markov,
                             .source = previous,
                             .out = as_writable_bytes(work.confidence_in.data() + hidden, num, rank, width)});
  state.kernels.gather_rows(state.context,
                            {.rows = as_bytes(work.final_rows.data(), state.num_draft_rows, hidden, hidden),
                             .source = {work.row_numbers.data() + i * num, {num}},
                             .out = as_writable_bytes(work.confidence_in.data(), num, hidden, width)});
}

}  // namespace

void run_draft_context(State& state) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const RowTable& table = state.rows->table;
  const int64_t rows = table.num_rows(), hidden = config.hidden,
                width = hidden * static_cast<int64_t>(config.draft.target_layers.size());
  state.kernels.linear(state.context, {.x = {work.features.data(), {rows, width}},
                                       .weight = state.views.draft.main_proj,
                                       .round_activation = true,
                                       .out = {work.main_x.data(), {rows, hidden}}});
  state.kernels.norm(state.context, {.x = {work.main_x.data(), {rows, hidden}},
                                     .weight = state.views.draft.main_norm,
                                     .epsilon = config.norm_epsilon,
                                     .out = {work.main_x.data(), {rows, hidden}}});
  trace_rows(state, state.config.num_layers, "main_x", work.main_x.data(), {rows, hidden});
  for (int l = config.num_layers; l < state.roles.num_layers(); ++l) {
    project_window_keys(state, l, work.main_x.data(), rows, state.rows->angles[0],
                        {.base = state.caches.ring_base(l), .offset_bytes = table.ring_offsets()});
  }
}

namespace {

Status check_draft(const State& state, std::span<const DraftSequence> sequences, const Caches& caches) {
  if (!state.has_draft()) return invalid_argument("draft: the model has no draft head");
  if (static_cast<int64_t>(sequences.size()) > state.options.draft_sequences_max)
    return resource_exhausted("draft: " + std::to_string(sequences.size()) + " sequences, room for " +
                              std::to_string(state.options.draft_sequences_max));
  for (const DraftSequence& sequence : sequences)
    if (sequence.lane < 0 || sequence.lane >= caches.num_lanes || sequence.position < 0 || sequence.anchor < 0 ||
        sequence.anchor >= state.config.vocab_size)
      return invalid_argument("draft: lane " + std::to_string(sequence.lane) + ", anchor " +
                              std::to_string(sequence.anchor) + " out of range");
  return {};
}

// The tables of the draft before have been read.
void begin_draft(State& state, std::span<const DraftSequence> sequences, const Caches& caches) {
  state.caches = caches;
  state.rows = nullptr;  // streams are the block's from here on
  state.num_draft_sequences = static_cast<int64_t>(sequences.size());
  state.num_draft_rows = state.num_draft_sequences * state.config.draft.block_size;
  if (sequences.empty()) return;
  state.draft_tables.lay_out(state.num_draft_rows);
  fill_draft_tables(state, sequences);
  state.draft_tables.upload();
}

Status run_block(State& state) {
  stage_block(state);
  for (int l = state.config.num_layers; l < state.roles.num_layers(); ++l) TRY(run_draft_layer(state, l));
  run_draft_head(state);
  return {};
}

// Position i of every block, given the tokens before it: the Markov term onto its logits, and the confidences.
View<const float, dim::rows, dim::vocab> run_chain(State& state, int64_t i) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const int64_t num = state.num_draft_sequences, rank = config.draft.markov_rank, width = config.hidden + rank;
  float* logits = work.draft_logits.data() + i * num * config.vocab_size;
  gather_chain_inputs(state, i);
  state.kernels.linear(state.context, {.x = {work.markov.data(), {num, rank}},
                                       .weight = state.views.draft.markov_head,
                                       .out_f32 = {logits, {num, config.vocab_size}},
                                       .add = true});
  state.kernels.linear(state.context, {.x = {work.confidence_in.data(), {num, width}},
                                       .weight = Bf16Matrix{state.views.draft.confidence.data, 1, width},
                                       .out_f32 = {work.confidence.data() + i * num, {num, 1}}});
  return {logits, {num, config.vocab_size}};
}

// Tables that device code fills instead of the host.
template <typename T>
T* written_by_device(const Staged<T>& table) {
  return const_cast<T*>(table.on_device());
}

}  // namespace

Status Forward::draft(std::span<const DraftSequence> sequences, const Caches& caches) {
  State& state = *state_;
  TRY(check_draft(state, sequences, caches));
  TRY(state.device.wait());  // the tables of the draft before have been read
  begin_draft(state, sequences, caches);
  if (sequences.empty()) return {};
  return run_recorded(state, {1, state.num_draft_sequences, state.work.pre.data() < state.work.next_pre.data()},
                      [&] { return run_block(state); });
}

View<const float, dim::rows, dim::vocab> Forward::draft_logits(int64_t i, std::span<const TokenId> previous,
                                                               std::span<float> confidences) {
  State& state = *state_;
  Workspace& work = state.work;
  const int64_t num = state.num_draft_sequences, first = i * num * state.config.vocab_size;
  CHECK(i >= 0 && i < state.config.draft.block_size && static_cast<int64_t>(previous.size()) == num &&
        static_cast<int64_t>(confidences.size()) == num);
  for (int64_t s = 0; s < num; ++s) state.chain.previous[s] = previous[static_cast<size_t>(s)];
  state.chain_tables.upload();
  const auto logits = run_chain(state, i);
  if (state.device.is_host()) {
    std::copy_n(work.confidence.data() + i * num, num, confidences.data());
    return logits;
  }
  const int64_t float_bytes = static_cast<int64_t>(sizeof(float));
  state.device.copy(work.host_draft_logits.data() + first, logits.data, logits.num_elements() * float_bytes);
  state.device.copy(work.host_confidence.data(), work.confidence.data() + i * num, num * float_bytes);
  static_cast<void>(state.device.wait());  // a fault sticks: wait() tells
  std::copy_n(work.host_confidence.data(), num, confidences.data());
  return {work.host_draft_logits.data() + first, logits.size};
}

Status Forward::pick_and_draft(std::span<const DraftSequence> sequences, const Caches& caches, const PickHooks& hooks) {
  State& state = *state_;
  if (!sequences.empty()) TRY(check_draft(state, sequences, caches));
  const PickHooks::Logits logits(state.work.logits.data(), {state.num_head_rows, state.config.vocab_size});
  begin_draft(state, sequences, caches);
  std::vector<int64_t> shape = {2, state.num_head_rows, state.num_draft_sequences,
                                state.work.pre.data() < state.work.next_pre.data()};
  shape.insert(shape.end(), hooks.shape.begin(), hooks.shape.end());
  return run_recorded(state, shape, [&]() -> Status {
    hooks.pick_rows(logits);
    if (state.num_draft_sequences > 0) {
      const DraftInputs inputs{written_by_device(state.draft.tokens), written_by_device(state.draft.positions),
                               written_by_device(state.draft.window_end), written_by_device(state.chain.previous),
                               state.config.draft.block_size};
      hooks.start_drafts(inputs);
      TRY(run_block(state));
      for (int64_t i = 0; i < inputs.block; ++i) hooks.pick_draft(i, run_chain(state, i), inputs);
      state.device.copy(state.work.host_confidence.data(), state.work.confidence.data(),
                        state.num_draft_rows * static_cast<int64_t>(sizeof(float)));
    }
    hooks.finish();
    return {};
  });
}

std::span<const float> Forward::draft_confidences() const {
  return {state_->work.host_confidence.data(), static_cast<size_t>(state_->num_draft_rows)};
}

View<const float, dim::rows, dim::vocab> Forward::draft_logits_of(std::span<const int32_t> columns) {
  State& state = *state_;
  const int64_t vocab = state.config.vocab_size, num = static_cast<int64_t>(columns.size()),
                rows = num * state.config.draft.block_size;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = row / num * state.num_draft_sequences + columns[static_cast<size_t>(row % num)];
    state.device.copy(state.work.host_draft_logits.data() + row * vocab, state.work.draft_logits.data() + from * vocab,
                      vocab * static_cast<int64_t>(sizeof(float)));
  }
  static_cast<void>(state.device.wait());  // a fault sticks: wait() tells
  return {state.work.host_draft_logits.data(), {rows, vocab}};
}

}  // namespace deepinfer
