// SPDX-License-Identifier: MIT
// The attention sublayer: queries, window KV, the core, the output projection (model.md 3.4, 3.8, 3.9), and the cut
// behind the last kv source (5.6).
#include <algorithm>
#include <cmath>

#include "model/forward_state.h"

namespace deepinfer {
namespace {

using State = Forward::State;

// Rows below decoder_begin end here: their keys are written, nothing behind this layer reads anything else of them.
void let_rows_go(State& state, int layer) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const RowTable& all = state.all.table;
  const RowTable& kept = state.boundary.table;
  const int64_t rows = all.num_rows(), streams = config.num_streams, hidden = config.hidden;
  state.kernels.scatter_rows(state.context, {.rows = {work.fresh.data(), {rows, state.layout.window_row_bytes}},
                                             .base = state.caches.ring_base(layer),
                                             .offset_bytes = {state.step.dropped_offsets.on_device(), {rows}}});
  keep_rows(state, kept, work.fresh.data(), rows, state.layout.window_row_bytes);
  keep_rows(state, kept, work.streams.data(), rows, streams * hidden);
  keep_rows(state, kept, work.input.data(), rows, hidden);
  keep_rows(state, kept, work.next_pre.data(), rows, streams);
  keep_rows(state, kept, work.post.data(), rows, streams);
  keep_rows(state, kept, work.comb.data(), rows, streams * streams);
  if (!state.layout.sources.empty()) keep_rows(state, kept, work.selected.data(), rows, config.index_top_k);
  if (work.candidates.size() > 0) keep_rows(state, kept, work.candidates.data(), rows, config.candidate_blocks);
  if (state.has_draft())
    keep_rows(state, kept, work.features.data(), rows,
              hidden * static_cast<int64_t>(config.draft.target_layers.size()));
  const int64_t per_token = config.engram.rows_per_token();
  for (size_t table = 0; table < config.engram.layers.size(); ++table) {
    int64_t* ids = &work.engram_ids[static_cast<int64_t>(table) * state.options.rows_max * per_token];
    for (int64_t row = 0; row < kept.num_rows(); ++row)
      if (kept.source(row) != row) std::copy_n(ids + kept.source(row) * per_token, per_token, ids + row * per_token);
    if (state.device.is_host()) continue;
    if (state.reads_tables()) {
      keep_rows(state, kept, &work.device_engram_ids[static_cast<int64_t>(table) * state.options.rows_max * per_token],
                rows, per_token);
      continue;
    }
    const EngramRows brought = engram_rows_of(state, static_cast<int>(table));
    keep_rows(state, kept, brought.codes, rows, per_token * config.engram.head_dim);
    keep_rows(state, kept, brought.scales, rows, per_token * num_scale_blocks(config.engram.head_dim));
  }
  state.rows = &state.boundary;
}

void attend(State& state, int layer) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const LayerRole& role = state.role(layer);
  const RowTable& table = state.rows->table;
  const int64_t rows = table.num_rows();
  SparseAttentionParams params{.q = {work.q.data(), {rows, config.num_heads, config.head_dim}},
                               .sink = state.layer_weights(layer).attention.sink,
                               .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                               .window = config.window,
                               .lane = table.lanes(),
                               .window_end = table.window_end(),
                               .window_begin = table.window_begin(),
                               .num_fresh = table.num_fresh(),
                               .fresh = {work.fresh.data(), {rows, state.layout.window_row_bytes}},
                               .ring = state.caches.ring(layer)};
  if (role.ratio > 0) {
    params.selected = {work.selected.data(), {rows, config.index_top_k}};
    params.global = state.caches.global_rows(role.source);
  }
  params.out = {work.o.data(), {rows, config.num_heads, config.head_dim}};
  state.kernels.sparse_attention(state.context, params);
  trace_rows(state, layer, "attn_o", work.o.data(), {rows, config.num_heads, config.head_dim});
  state.kernels.scatter_rows(state.context, {.rows = {work.fresh.data(), {rows, state.layout.window_row_bytes}},
                                             .base = state.caches.ring_base(layer),
                                             .offset_bytes = table.ring_offsets()});
}

}  // namespace

void project_window_keys(State& state, int layer, const bf16* x, int64_t num_rows, const RopeAngles& angles,
                         const PackedPlace& to) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const AttentionWeights& weights = state.layer_weights(layer).attention;
  state.kernels.linear(state.context, {.x = {x, {num_rows, config.hidden}},
                                       .weight = weights.wkv,
                                       .round_activation = true,
                                       .out = {work.kv.data(), {num_rows, config.head_dim}}});
  state.kernels.pack_keys(state.context, {.x = {work.kv.data(), {num_rows, config.head_dim}},
                                          .norm_weight = weights.kv_norm,
                                          .norm_epsilon = config.norm_epsilon,
                                          .cos = angles.cosines(),
                                          .sin = angles.sines(),
                                          .to = to});
}

void project_queries(State& state, int layer, int64_t num_rows, const RopeAngles& angles) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const AttentionWeights& weights = state.layer_weights(layer).attention;
  const int64_t width = int64_t{config.num_heads} * config.head_dim;
  state.kernels.linear(state.context, {.x = {work.input.data(), {num_rows, config.hidden}},
                                       .weight = weights.wq_a,
                                       .round_activation = true,
                                       .out = {work.qr.data(), {num_rows, config.q_rank}}});
  state.kernels.norm(state.context, {.x = {work.qr.data(), {num_rows, config.q_rank}},
                                     .weight = weights.q_norm,
                                     .epsilon = config.norm_epsilon,
                                     .out = {work.qr.data(), {num_rows, config.q_rank}}});
  state.kernels.linear(state.context, {.x = {work.qr.data(), {num_rows, config.q_rank}},
                                       .weight = weights.wq_b,
                                       .round_activation = true,
                                       .out = {work.q.data(), {num_rows, width}}});
  state.kernels.rope(state.context, {.x = {work.q.data(), {num_rows, config.num_heads, config.head_dim}},
                                     .cos = angles.cosines(),
                                     .sin = angles.sines()});
  trace_rows(state, layer, "qr", work.qr.data(), {num_rows, config.q_rank});
  trace_rows(state, layer, "q", work.q.data(), {num_rows, config.num_heads, config.head_dim});
}

void project_output(State& state, int layer, int64_t num_rows, const RopeAngles& angles) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const AttentionWeights& weights = state.layer_weights(layer).attention;
  const int64_t width = int64_t{config.num_heads} * config.head_dim, inner = config.output_groups * config.output_rank;
  state.kernels.rope(state.context, {.x = {work.o.data(), {num_rows, config.num_heads, config.head_dim}},
                                     .cos = angles.cosines(),
                                     .sin = angles.sines(),
                                     .inverse = true});
  state.kernels.linear(state.context, {.x = {work.o.data(), {num_rows, width}},
                                       .weight = weights.wo_a,
                                       .num_groups = config.output_groups,
                                       .out = {work.z.data(), {num_rows, inner}}});
  trace_rows(state, layer, "z", work.z.data(), {num_rows, inner});
  state.kernels.linear(state.context, {.x = {work.z.data(), {num_rows, inner}},
                                       .weight = weights.wo_b,
                                       .round_activation = true,
                                       .out = {work.output.data(), {num_rows, config.hidden}}});
}

void run_attention(State& state, int layer) {
  Workspace& work = state.work;
  const LayerRole& role = state.role(layer);
  const int kind = role.ratio > 0;
  const bool is_last_source = layer == state.roles.num_encoder_layers - 1;
  const int64_t key_rows = state.num_rows();
  trace_rows(state, layer, "attn_in", work.input.data(), {key_rows, state.config.hidden});
  project_window_keys(state, layer, work.input.data(), key_rows, state.rows->angles[kind],
                      {.base = work.fresh.data(), .stride_bytes = state.layout.window_row_bytes});
  if (role.makes_keys) write_keys(state, layer);
  if (is_last_source && state.drops_rows) let_rows_go(state, layer);
  if (const int64_t rows = state.num_rows(); rows > 0) {
    project_queries(state, layer, rows, state.rows->angles[kind]);
    if (role.selects) select_entries(state, layer);
    attend(state, layer);
    project_output(state, layer, rows, state.rows->angles[kind]);
  }
  if (is_last_source) state.rows = &state.decoder;
}

}  // namespace deepinfer
