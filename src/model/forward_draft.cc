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

// Block rows stand sequence by sequence: [anchor, noise, noise, ...] at positions P, P+1, ...
void stage_block(State& state, std::span<const DraftSequence> sequences) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const int64_t block = config.draft.block_size, streams = config.num_streams;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const DraftSequence& sequence = sequences[s];
    for (int64_t i = 0; i < block; ++i) {
      const int64_t row = static_cast<int64_t>(s) * block + i;
      work.tokens[row] = i == 0 ? sequence.anchor : config.draft.noise_token_id;
      work.image_row[row] = -1;
      work.draft_positions[row] = static_cast<int32_t>(sequence.position + i);
      work.draft_lanes[row] = sequence.lane;
      work.draft_window_begin[row] = static_cast<int32_t>(sequence.window_begin);
      work.draft_window_end[row] = static_cast<int32_t>(sequence.position);
      work.draft_num_fresh[row] = 0;
      work.draft_block_begin[row] = static_cast<int32_t>(static_cast<int64_t>(s) * block);
      for (int64_t i_stream = 0; i_stream < streams; ++i_stream)
        work.pre[row * streams + i_stream] = i_stream == 0 ? 1.0f : 0.0f;
    }
  }
  const int64_t rows = state.num_draft_rows;
  fill_angles(state, {work.draft_positions.data(), {rows}}, 0, state.draft_angles);
  state.kernels.embedding(state.context, {.embed = state.weights.embed,
                                          .token = {work.tokens.data(), {rows}},
                                          .out = {work.streams.data(), {rows, streams, config.hidden}}});
}

// Keys: the ring below the anchor, then all rows of the own block. The block's keys are never stored.
void attend_block(State& state, int layer) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const int64_t rows = state.num_draft_rows;
  trace_rows(state, layer, "attn_in", work.input.data(), {rows, config.hidden});
  project_window_keys(state, layer, work.input.data(), rows, state.draft_angles);
  state.kernels.pack_rows(state.context, {.format = RowFormat::kFp8Block32,
                                          .x = {work.kv.data(), {rows, config.head_dim}},
                                          .base = work.fresh.data(),
                                          .stride_bytes = state.layout.window_row_bytes});
  project_queries(state, layer, rows, state.draft_angles);
  state.kernels.sparse_attention(state.context, {.q = {work.q.data(), {rows, config.num_heads, config.head_dim}},
                                                 .sink = state.layer_weights(layer).attention.sink,
                                                 .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                                                 .window = config.window,
                                                 .lane = {work.draft_lanes.data(), {rows}},
                                                 .window_end = {work.draft_window_end.data(), {rows}},
                                                 .window_begin = {work.draft_window_begin.data(), {rows}},
                                                 .num_fresh = {work.draft_num_fresh.data(), {rows}},
                                                 .fresh = {work.fresh.data(), {rows, state.layout.window_row_bytes}},
                                                 .ring = state.caches.ring(layer),
                                                 .block_rows = config.draft.block_size,
                                                 .block_begin = {work.draft_block_begin.data(), {rows}},
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
  update_streams(state, rows);
  return run_moe_sublayer(state, layer, rows, nullptr);
}

// Rows of the head stand position by position, [block, sequences], so that one step of the chain is one run of rows.
void run_draft_head(State& state) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const int64_t rows = state.num_draft_rows, hidden = config.hidden, streams = config.num_streams;
  const int64_t block = config.draft.block_size, sequences = state.num_draft_sequences;
  state.kernels.stream_collapse(state.context, {.x = {work.streams.data(), {rows, streams, hidden}},
                                                .pre = {work.pre.data(), {rows, streams}},
                                                .out = {work.collapsed.data(), {rows, hidden}}});
  trace_rows(state, state.roles.num_layers(), "draft_h", work.collapsed.data(), {rows, hidden});
  for (int64_t s = 0; s < sequences; ++s)
    for (int64_t i = 0; i < block; ++i)
      std::copy_n(&work.collapsed[(s * block + i) * hidden], hidden, &work.final_rows[(i * sequences + s) * hidden]);
  state.kernels.norm(state.context, {.x = {work.final_rows.data(), {rows, hidden}},
                                     .weight = state.weights.draft.norm,
                                     .epsilon = config.norm_epsilon,
                                     .out = {work.final_norm.data(), {rows, hidden}}});
  state.kernels.linear(state.context, {.x = {work.final_norm.data(), {rows, hidden}},
                                       .weight = state.weights.head,
                                       .out_f32 = {work.draft_logits.data(), {rows, config.vocab_size}}});
}

}  // namespace

void run_draft_context(State& state) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const RowTable& table = state.rows->table;
  const int64_t rows = table.num_rows(), hidden = config.hidden,
                width = hidden * static_cast<int64_t>(config.draft.target_layers.size());
  state.kernels.linear(state.context, {.x = {work.features.data(), {rows, width}},
                                       .weight = state.weights.draft.main_proj,
                                       .round_activation = true,
                                       .out = {work.main_x.data(), {rows, hidden}}});
  state.kernels.norm(state.context, {.x = {work.main_x.data(), {rows, hidden}},
                                     .weight = state.weights.draft.main_norm,
                                     .epsilon = config.norm_epsilon,
                                     .out = {work.main_x.data(), {rows, hidden}}});
  trace_rows(state, state.config.num_layers, "main_x", work.main_x.data(), {rows, hidden});
  for (int l = config.num_layers; l < state.roles.num_layers(); ++l) {
    project_window_keys(state, l, work.main_x.data(), rows, state.rows->angles[0]);
    state.kernels.pack_rows(state.context, {.format = RowFormat::kFp8Block32,
                                            .x = {work.kv.data(), {rows, config.head_dim}},
                                            .base = state.caches.ring_base(l),
                                            .offset_bytes = table.ring_offsets()});
  }
}

Status Forward::draft(std::span<const DraftSequence> sequences, const Caches& caches) {
  State& state = *state_;
  const int64_t num = static_cast<int64_t>(sequences.size());
  if (!state.has_draft()) return invalid_argument("draft: the model has no draft head");
  if (num > state.options.draft_sequences_max)
    return resource_exhausted("draft: " + std::to_string(num) + " sequences, room for " +
                              std::to_string(state.options.draft_sequences_max));
  for (const DraftSequence& sequence : sequences)
    if (sequence.lane < 0 || sequence.lane >= caches.num_lanes || sequence.position < 0 || sequence.anchor < 0 ||
        sequence.anchor >= state.config.vocab_size)
      return invalid_argument("draft: lane " + std::to_string(sequence.lane) + ", anchor " +
                              std::to_string(sequence.anchor) + " out of range");
  state.caches = caches;
  state.rows = nullptr;  // streams are the block's from here on
  state.num_draft_sequences = num;
  state.num_draft_rows = num * state.config.draft.block_size;
  if (num == 0) return {};
  stage_block(state, sequences);
  for (int l = state.config.num_layers; l < state.roles.num_layers(); ++l) TRY(run_draft_layer(state, l));
  run_draft_head(state);
  return {};
}

View<const float, dim::rows, dim::vocab> Forward::draft_logits(int64_t i, std::span<const TokenId> previous,
                                                               std::span<float> confidences) {
  State& state = *state_;
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const int64_t num = state.num_draft_sequences, rank = config.draft.markov_rank, hidden = config.hidden,
                width = hidden + rank;
  CHECK(i >= 0 && i < config.draft.block_size && static_cast<int64_t>(previous.size()) == num &&
        static_cast<int64_t>(confidences.size()) == num);
  float* logits = work.draft_logits.data() + i * num * config.vocab_size;
  for (int64_t s = 0; s < num; ++s) {
    const bf16* embed = state.weights.draft.markov_embed.row(previous[static_cast<size_t>(s)]);
    std::copy_n(embed, rank, &work.markov[s * rank]);
    std::copy_n(&work.final_rows[(i * num + s) * hidden], hidden, &work.confidence_in[s * width]);
    std::copy_n(embed, rank, &work.confidence_in[s * width + hidden]);
  }
  state.kernels.linear(state.context, {.x = {work.markov.data(), {num, rank}},
                                       .weight = state.weights.draft.markov_head,
                                       .out_f32 = {logits, {num, config.vocab_size}},
                                       .add = true});
  const Bf16Vector& projection = state.weights.draft.confidence;
  state.kernels.linear(state.context, {.x = {work.confidence_in.data(), {num, width}},
                                       .weight = Bf16Matrix{projection.data, 1, width},
                                       .out_f32 = {work.confidence.data(), {num, 1}}});
  std::copy_n(work.confidence.data(), num, confidences.data());
  return {logits, {num, config.vocab_size}};
}

}  // namespace deepinfer
