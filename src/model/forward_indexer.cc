// SPDX-License-Identifier: MIT
// What a kv source writes for the layers behind it, and which entries an index source selects (model.md 3.5-3.7).
#include <algorithm>
#include <bit>
#include <cmath>

#include "model/forward_state.h"

namespace deepinfer {
namespace {

using State = Forward::State;

// Ratio 1: every token is a group, its projection rounded to bf16 before the norm. Above: pooled in fp32.
void make_latents(State& state, int layer) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const LayerRole& role = state.role(layer);
  const CompressorWeights& weights = state.layer_weights(layer).attention.compressor;
  const GroupTable& groups = state.groups[static_cast<size_t>(role.source)];
  const int64_t rows = state.num_rows(), dim = config.head_dim, num_groups = groups.num_groups();
  const View<const bf16, dim::rows, dim::in> input(work.input.data(), {rows, config.hidden});
  if (role.ratio == 1) {
    state.kernels.linear(state.context, {.x = input, .weight = weights.wkv, .out = {work.latent.data(), {rows, dim}}});
  } else {
    const View<float, dim::tokens, dim::head_dim> kv(work.pool_kv.data(), {rows, dim}),
        gate(work.pool_gate.data(), {rows, dim});
    state.kernels.linear(state.context, {.x = input, .weight = weights.wkv, .out_f32 = {kv.data, {rows, dim}}});
    state.kernels.linear(state.context, {.x = input, .weight = weights.wgate, .out_f32 = {gate.data, {rows, dim}}});
    const auto tail = state.caches.tail(role.source);
    if (num_groups > 0)
      state.kernels.compressor_pool(state.context, {.ratio = role.ratio,
                                                    .kv = kv,
                                                    .gate = gate,
                                                    .tail = tail,
                                                    .lane = groups.lanes(),
                                                    .last_row = groups.last_rows(),
                                                    .last_position = groups.last_positions(),
                                                    .num_rows = groups.num_rows(),
                                                    .out = {work.latent.data(), {num_groups, dim}}});
    state.kernels.compressor_tail(
        state.context,
        {.kv = kv, .gate = gate, .lane = state.rows->table.lanes(), .position = groups.tail_positions(), .tail = tail});
  }
  if (num_groups > 0)
    state.kernels.norm(state.context, {.x = {work.latent.data(), {num_groups, dim}},
                                       .weight = weights.norm,
                                       .epsilon = config.norm_epsilon,
                                       .out = {work.latent.data(), {num_groups, dim}}});
  trace_rows(state, layer, "latent", work.latent.data(), {num_groups, dim});
}

// From the latent before it is rotated.
void write_index_keys(State& state, int layer) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const int source = state.role(layer).source;
  const IndexerWeights& weights = state.layer_weights(layer).attention.indexer;
  const GroupTable& groups = state.groups[static_cast<size_t>(source)];
  const RopeAngles& angles = state.group_angles[static_cast<size_t>(source)];
  const int64_t num_groups = groups.num_groups(), dim = config.index_head_dim;
  bf16* keys = work.index_key.data();
  state.kernels.linear(state.context, {.x = {work.latent.data(), {num_groups, config.head_dim}},
                                       .weight = weights.wk,
                                       .out = {keys, {num_groups, dim}}});
  state.kernels.norm(state.context, {.x = {keys, {num_groups, dim}},
                                     .weight = weights.k_norm,
                                     .epsilon = config.norm_epsilon,
                                     .out = {keys, {num_groups, dim}}});
  state.kernels.rope(state.context,
                     {.x = {keys, {num_groups, 1, dim}}, .cos = angles.cosines(), .sin = angles.sines()});
  state.kernels.pack_rows(state.context, {.format = RowFormat::kFp4Group32,
                                          .x = {keys, {num_groups, dim}},
                                          .base = state.caches.index_base(source),
                                          .offset_bytes = groups.index_offsets()});
}

void write_global_rows(State& state, int layer) {
  Workspace& work = state.work;
  const int source = state.role(layer).source;
  const GroupTable& groups = state.groups[static_cast<size_t>(source)];
  const RopeAngles& angles = state.group_angles[static_cast<size_t>(source)];
  const int64_t num_groups = groups.num_groups(), dim = state.config.head_dim;
  state.kernels.rope(state.context,
                     {.x = {work.latent.data(), {num_groups, 1, dim}}, .cos = angles.cosines(), .sin = angles.sines()});
  state.kernels.pack_rows(state.context, {.format = RowFormat::kFp4Group16,
                                          .x = {work.latent.data(), {num_groups, dim}},
                                          .base = state.caches.global_base(source),
                                          .offset_bytes = groups.global_offsets()});
}

void make_index_queries(State& state, int layer, int64_t rows) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const IndexerWeights& weights = state.layer_weights(layer).attention.indexer;
  const int64_t heads = config.index_heads, dim = config.index_head_dim;
  const RopeAngles& angles = state.rows->angles[1];
  bf16* q = work.index_q.data();
  state.kernels.linear(state.context, {.x = {work.qr.data(), {rows, config.q_rank}},
                                       .weight = weights.wq_b,
                                       .round_activation = true,
                                       .out = {q, {rows, heads * dim}}});
  state.kernels.rope(state.context, {.x = {q, {rows, heads, dim}}, .cos = angles.cosines(), .sin = angles.sines()});
  state.kernels.round_rows(
      state.context,
      {.format = RowFormat::kFp4Group32, .x = {q, {rows * heads, dim}}, .out = {q, {rows * heads, dim}}});
  state.kernels.linear(state.context, {.x = {work.input.data(), {rows, config.hidden}},
                                       .weight = weights.weights_proj,
                                       .out = {work.index_weight.data(), {rows, heads}}});
}

// The source whose keys layer `layer` scores position `position` against. The published reference hands keys down
// through one slot that is refreshed only when a group completes, so a decode row that leaves its group open meets
// whatever was published last: by an earlier source in this step, or by the last one that completed a group in the step
// before (model.md 8.1).
int key_source(const State& state, int layer, int64_t position, bool is_decode_row) {
  const LayerRole& role = state.role(layer);
  if (!state.options.reproduces_published_key_slot || !is_decode_row || !role.makes_keys) return role.source;
  for (int s = role.source; s >= 0; --s)
    if ((position + 1) % state.roles.source_ratios[static_cast<size_t>(s)] == 0) return s;
  for (int s = state.roles.num_sources() - 1; s >= 0; --s)
    if (position % state.roles.source_ratios[static_cast<size_t>(s)] == 0) return s;
  return role.source;
}

// One run of rows whose scores are held at once. Nothing depends on where runs are cut.
struct ScoreTile {
  Range rows;
  int32_t max_visible = 0;
  int keys = 0;            // source whose keys are scored
  int64_t num_blocks = 0;  // candidate blocks a row may list; 0: no filter in this tile
};

IndexScoresParams score_params(State& state, const ScoreTile& tile, int64_t width) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const RowTable& table = state.rows->table;
  const int64_t begin = tile.rows.begin, num = tile.rows.size(), heads = config.index_heads,
                dim = config.index_head_dim;
  return {.q = {work.index_q.data() + begin * heads * dim, {num, heads, dim}},
          .weight = {work.index_weight.data() + begin * heads, {num, heads}},
          .weight_scale = 1.0f / std::sqrt(static_cast<float>(dim)) * (1.0f / std::sqrt(static_cast<float>(heads))),
          .rounding = state.options.score_rounding,
          .keys = state.caches.index_rows(tile.keys),
          .lane = table.lanes().rows(begin, tile.rows.end),
          .scores = {work.scores.data(), {num, width}}};
}

void select_tile(State& state, int layer, const ScoreTile& tile) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const LayerRole& role = state.role(layer);
  const RowTable& table = state.rows->table;
  const int64_t begin = tile.rows.begin, num = tile.rows.size(), top_k = config.index_top_k,
                blocks = config.candidate_blocks;
  const auto visible = table.num_visible(role.source).rows(begin, tile.rows.end);
  const int block_size = config.candidate_block_size;
  const bool filters = tile.num_blocks > 0;
  const int64_t width = filters ? tile.num_blocks * block_size : score_width(state, tile.max_visible);
  View<const int32_t, dim::tokens, dim::blocks> candidates;
  if (filters) candidates = {work.candidates.data() + begin * blocks, {num, tile.num_blocks}, {blocks, 1}};
  TopKParams pick{.num_visible = visible,
                  .candidates = candidates,
                  .candidate_block_size = block_size,
                  .out = {work.selected.data() + begin * top_k, {num, top_k}}};
  if (tile.max_visible > top_k) {
    IndexScoresParams scores = score_params(state, tile, width);
    scores.num_visible = visible;
    scores.candidates = candidates;
    scores.candidate_block_size = block_size;
    state.kernels.index_scores(state.context, scores);
    pick.scores = {work.scores.data(), {num, width}};
  }
  if (role.makes_candidates)  // without scores the sequences are too short to fill the list: all their blocks stay
    state.kernels.candidate_blocks(state.context, {.scores = pick.scores,
                                                   .num_visible = visible,
                                                   .block_size = block_size,
                                                   .out = {work.candidates.data() + begin * blocks, {num, blocks}}});
  state.kernels.top_k(state.context, pick);
}

bool is_decode_row(const RowTable& table, int64_t row) {
  for (int64_t s = 0; s < table.num_sequences(); ++s)
    if (const Range rows = table.sequence_rows(s); row >= rows.begin && row < rows.end)
      return rows.size() == 1 && table.position(row) > 0;
  return false;
}

// As many rows as the score buffer holds, at least one.
ScoreTile next_tile(const State& state, int layer, int64_t begin) {
  const LayerRole& role = state.role(layer);
  const RowTable& table = state.rows->table;
  const ModelConfig& config = state.config;
  ScoreTile tile{.rows = {begin, begin}, .keys = role.source};
  if (state.options.reproduces_published_key_slot) {
    tile.rows.end = begin + 1;
    tile.max_visible = table.visible(role.source, begin);
    tile.keys = key_source(state, layer, table.position(begin), is_decode_row(table, begin));
  } else {
    while (tile.rows.end < table.num_rows()) {
      const int32_t widest = std::max(tile.max_visible, table.visible(role.source, tile.rows.end));
      const int64_t entries = (tile.rows.size() + 1) * score_width(state, widest);
      if (!tile.rows.empty() && entries > state.options.score_entries_max) break;
      tile.max_visible = widest;
      ++tile.rows.end;
    }
  }
  const int64_t blocks = role.uses_candidates ? ceil_div<int64_t>(tile.max_visible, config.candidate_block_size) : 0;
  if (blocks > config.candidate_blocks) tile.num_blocks = config.candidate_blocks;
  return tile;
}

}  // namespace

int64_t score_width(const State& state, int64_t max_visible) {
  if (max_visible <= state.config.index_top_k) return 0;  // all are taken
  if (state.device.is_host()) return max_visible;
  return round_up(max_visible, std::max<int64_t>(
                                   1024, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(max_visible))) / 8));
}

void write_keys(State& state, int layer) {
  make_latents(state, layer);
  if (state.groups[static_cast<size_t>(state.role(layer).source)].num_groups() == 0) return;
  write_index_keys(state, layer);
  write_global_rows(state, layer);
}

void select_entries(State& state, int layer) {
  const int64_t rows = state.num_rows();
  if (state.rows->table.max_visible(state.role(layer).source) > state.config.index_top_k)
    make_index_queries(state, layer, rows);
  for (int64_t begin = 0; begin < rows;) {
    const ScoreTile tile = next_tile(state, layer, begin);
    select_tile(state, layer, tile);
    begin = tile.rows.end;
  }
  trace_rows(state, layer, "topk", state.work.selected.data(), {rows, state.config.index_top_k});
}

}  // namespace deepinfer
