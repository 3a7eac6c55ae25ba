// SPDX-License-Identifier: MIT
// What the files of the forward pass share: the model, the step's rows and the work buffers. Internal to forward*.cc.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engram/table.h"
#include "model/forward.h"
#include "model/layer_roles.h"
#include "model/row_table.h"
#include "tensor/buffer.h"

namespace deepinfer {

// cos and sin of one set of positions.
struct RopeAngles {
  Buffer<float> cos, sin;
  int64_t num_rows = 0, num_pairs = 0;
  RopeAngles() = default;
  RopeAngles(int64_t rows_max, int64_t pairs) : cos(rows_max * pairs), sin(rows_max * pairs), num_pairs(pairs) {}
  View<const float, dim::tokens, dim::rope_pairs> cosines() const { return {cos.data(), {num_rows, num_pairs}}; }
  View<const float, dim::tokens, dim::rope_pairs> sines() const { return {sin.data(), {num_rows, num_pairs}}; }
};

// A RowTable with its angles for layers of ratio 0 ([0]) and above ([1]).
struct StepRows {
  RowTable table;
  RopeAngles angles[2];
};

// Buffers of the layers, sized from rows_max once. Names follow the golden traces.
struct Workspace {
  Buffer<bf16> streams, collapsed, input, output;  // [rows, S*D], [rows, D] x3
  Buffer<float> pre, next_pre, post, comb;         // [rows, S], [rows, S], [rows, S], [rows, S*S]
  Buffer<bf16> qr, q, kv, o, z;           // [rows, q_rank], [rows, H*hd], [rows, hd], [rows, H*hd], [rows, groups*rank]
  Buffer<uint8_t> fresh, fresh_selected;  // [rows, window_row_bytes]
  Buffer<float> pool_kv, pool_gate;       // [rows, hd]
  Buffer<bf16> latent, index_key;         // [rows, hd], [rows, index_head_dim]
  Buffer<bf16> index_q, index_weight;     // [rows, index_heads*index_head_dim], [rows, index_heads]
  Buffer<float> scores;                   // [score_entries_max]
  Buffer<int32_t> selected, candidates;   // [rows, top_k], [rows, candidate_blocks]
  Buffer<float> router_logits, expert_weight, assignment_weight;
  Buffer<int32_t> expert, expert_begin, assignment_row, assignment, shared_begin;
  Buffer<bf16> expert_out, shared_out;          // [rows*choices, D], [rows, D]
  Buffer<bf16> engram_rows, engram_kv;          // [rows, row_columns], [rows, (S+1)*D]
  Buffer<int64_t> engram_ids, engram_places;    // [tables, rows, rows_per_token], [rows, rows_per_token] = 0, 1, 2 ...
  Buffer<uint8_t> engram_codes, engram_scales;  // staged table rows
  Buffer<int64_t> offsets;                      // [rows]
  Buffer<bf16> image_rows;                      // [rows, D]
  Buffer<int32_t> image_row;                    // [rows]
  Buffer<bf16> features, main_x;                // [rows, targets*D], [rows, D]
  Buffer<bf16> final_rows, final_norm;          // [max(logits rows, draft rows), D]
  Buffer<float> logits, draft_logits;
  Buffer<bf16> markov, confidence_in;  // [sequences, markov_rank], [sequences, D + markov_rank]
  Buffer<float> confidence, mean_weight;
  Buffer<TokenId> tokens;
  Buffer<int32_t> draft_positions, draft_lanes, draft_window_begin, draft_window_end, draft_num_fresh,
      draft_block_begin;
};

struct Forward::State {
  Forward::Parts parts;
  const ModelWeights& weights;
  const ModelConfig& config;
  const KernelTable& kernels;
  ExecutionContext context;
  CacheLayout layout;
  ForwardOptions options;
  LayerRoles roles;
  std::vector<std::vector<ExpertMatrices>> experts;  // per layer, by expert id
  std::vector<std::vector<ExpertMatrices>> shared;   // per layer, one
  std::vector<MappedEngramTable> engram_tables;
  Buffer<float> frequencies[2];
  Workspace work;

  // The step.
  Caches caches;
  StepRows all, boundary, decoder;
  const StepRows* rows = nullptr;  // what streams, pre and features hold
  bool drops_rows = false;         // some rows stop at the last kv source
  std::vector<GroupTable> groups;  // per source
  std::vector<RopeAngles> group_angles;
  int64_t num_logits_rows = 0;
  RopeAngles draft_angles;
  int64_t num_draft_rows = 0, num_draft_sequences = 0;
  TraceSink trace;

  State(const Forward::Parts& p, const CacheLayout& l, const ForwardOptions& o)
      : parts(p),
        weights(p.weights),
        config(p.weights.config()),
        kernels(p.kernels),
        context(p.context),
        layout(l),
        options(o) {}

  const LayerWeights& layer_weights(int layer) const {
    return layer < config.num_layers ? weights.layer(layer)
                                     : weights.draft.layers[static_cast<size_t>(layer - config.num_layers)];
  }
  const LayerRole& role(int layer) const { return roles.layers[static_cast<size_t>(layer)]; }
  int64_t num_rows() const { return rows ? rows->table.num_rows() : 0; }
  bool has_draft() const { return !weights.draft.layers.empty() && config.draft.block_size > 0; }
};

void allocate_workspace(Forward::State& state);
int64_t workspace_bytes(const Workspace& work);

// One sublayer input to output, [rows, D] each; `work.input` holds the normed input, `work.output` receives the result.
// Attention of the last kv source writes keys for all rows and leaves streams, pre, input and selections at the rows
// that go on.
void run_attention(Forward::State& state, int layer);
Status run_experts(Forward::State& state, int layer, int64_t num_rows, const uint8_t* is_image);

// Shared by backbone and draft layers. Streams and pre hold num_rows rows.
void collapse_and_norm(Forward::State& state, const float* pre, const Bf16Vector& weight, int64_t num_rows);
// Into next_pre, post and comb; `site` names it in traces.
void mix_streams(Forward::State& state, int layer, std::string_view site, const StreamMixWeights& mix,
                 int64_t num_rows);
void update_streams(Forward::State& state, int64_t num_rows);
Status run_moe_sublayer(Forward::State& state, int layer, int64_t num_rows, const uint8_t* is_image);
// Queries into work.q (rotated) and work.qr; keys and values of the rows into packed rows.
void project_queries(Forward::State& state, int layer, int64_t num_rows, const RopeAngles& angles);
void project_window_keys(Forward::State& state, int layer, const bf16* x, int64_t num_rows, const RopeAngles& angles);
void project_output(Forward::State& state, int layer, int64_t num_rows, const RopeAngles& angles);
void write_keys(Forward::State& state, int layer);      // compressor, global KV and index keys of a kv source
void select_entries(Forward::State& state, int layer);  // index source: work.selected
void run_draft_context(Forward::State& state);
void fill_angles(Forward::State& state, View<const int32_t, dim::tokens> positions, int kind, RopeAngles& angles);

template <typename T>
void trace_rows(const Forward::State& state, int layer, std::string_view name, const T* data,
                std::vector<int64_t> shape) {
  if (!state.trace) return;
  DType dtype = DType::kI32;
  if constexpr (std::is_same_v<T, bf16>) dtype = DType::kBF16;
  if constexpr (std::is_same_v<T, float>) dtype = DType::kF32;
  if constexpr (std::is_same_v<T, int64_t>) dtype = DType::kI64;
  if constexpr (std::is_same_v<T, uint8_t>) dtype = DType::kU8;
  state.trace(TraceTensor{layer, name, dtype, data, std::move(shape)});
}

template <typename T>
void gather_rows(const RowTable& table, T* data, int64_t row_elements) {  // in place: sources ascend
  for (int64_t row = 0; row < table.num_rows(); ++row)
    if (table.source(row) != row)
      std::copy_n(data + table.source(row) * row_elements, row_elements, data + row * row_elements);
}

}  // namespace deepinfer
