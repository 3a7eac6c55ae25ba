// SPDX-License-Identifier: MIT
// Sizes of the work buffers, all from the limits.
#include <algorithm>

#include "model/forward_state.h"

namespace deepinfer {
namespace {

void allocate_streams(Workspace& work, const ModelConfig& config, int64_t rows) {
  const int64_t streams = config.num_streams, hidden = config.hidden;
  work.streams = Buffer<bf16>(rows * streams * hidden);
  work.collapsed = Buffer<bf16>(rows * hidden);
  work.input = Buffer<bf16>(rows * hidden);
  work.output = Buffer<bf16>(rows * hidden);
  work.pre = Buffer<float>(rows * streams);
  work.next_pre = Buffer<float>(rows * streams);
  work.post = Buffer<float>(rows * streams);
  work.comb = Buffer<float>(rows * streams * streams);
  work.mean_weight = Buffer<float>(rows * streams);
  std::fill(work.mean_weight.begin(), work.mean_weight.end(), 1.0f / static_cast<float>(streams));
  work.tokens = Buffer<TokenId>(rows);
  work.image_rows = Buffer<bf16>(config.vision ? rows * hidden : 0);
  work.image_row = Buffer<int32_t>(rows);
}

void allocate_attention(Workspace& work, const ModelConfig& config, const CacheLayout& layout, int64_t rows,
                        int64_t score_entries) {
  work.qr = Buffer<bf16>(rows * config.q_rank);
  work.q = Buffer<bf16>(rows * config.num_heads * config.head_dim);
  work.kv = Buffer<bf16>(rows * config.head_dim);
  work.o = Buffer<bf16>(rows * config.num_heads * config.head_dim);
  work.z = Buffer<bf16>(rows * config.output_groups * config.output_rank);
  work.fresh = Buffer<uint8_t>(rows * layout.window_row_bytes);
  work.fresh_selected = Buffer<uint8_t>(rows * layout.window_row_bytes);
  work.offsets = Buffer<int64_t>(rows);
  if (layout.sources.empty()) return;
  work.pool_kv = Buffer<float>(rows * config.head_dim);
  work.pool_gate = Buffer<float>(rows * config.head_dim);
  work.latent = Buffer<bf16>(rows * config.head_dim);
  work.index_key = Buffer<bf16>(rows * config.index_head_dim);
  work.index_q = Buffer<bf16>(rows * config.index_heads * config.index_head_dim);
  work.index_weight = Buffer<bf16>(rows * config.index_heads);
  work.scores = Buffer<float>(score_entries);
  work.selected = Buffer<int32_t>(rows * config.index_top_k);
  work.candidates = Buffer<int32_t>(config.candidate_source_layer >= 0 ? rows * config.candidate_blocks : 0);
}

void allocate_experts(Workspace& work, const ModelConfig& config, int64_t rows) {
  const int64_t experts = std::max(config.num_experts, config.draft.num_experts);
  const int64_t choices = std::max(config.experts_per_token, config.draft.experts_per_token);
  work.router_logits = Buffer<float>(rows * experts);
  work.expert = Buffer<int32_t>(rows * choices);
  work.expert_weight = Buffer<float>(rows * choices);
  work.expert_begin = Buffer<int32_t>(experts + 1);
  work.assignment_row = Buffer<int32_t>(rows * choices);
  work.assignment_weight = Buffer<float>(rows * choices);
  work.assignment = Buffer<int32_t>(rows * choices);
  work.shared_begin = Buffer<int32_t>(2);
  work.expert_out = Buffer<bf16>(rows * choices * config.hidden);
  work.shared_out = Buffer<bf16>(rows * config.hidden);
}

void allocate_engram(Workspace& work, const ModelConfig& config, int64_t rows) {
  const EngramConfig& engram = config.engram;
  if (engram.empty()) return;
  const int64_t places = rows * engram.rows_per_token();
  work.engram_ids = Buffer<int64_t>(static_cast<int64_t>(engram.layers.size()) * places);
  work.engram_places = Buffer<int64_t>(places);
  for (int64_t i = 0; i < places; ++i) work.engram_places[i] = i;
  work.engram_codes = Buffer<uint8_t>(places * engram.head_dim);
  work.engram_scales = Buffer<uint8_t>(places * num_scale_blocks(engram.head_dim));
  work.engram_rows = Buffer<bf16>(rows * engram.row_columns());
  work.engram_kv = Buffer<bf16>(rows * (config.num_streams + 1) * config.hidden);
}

void allocate_draft(Workspace& work, const ModelConfig& config, int64_t rows, int64_t sequences, int64_t draft_rows) {
  const DraftConfig& draft = config.draft;
  work.features = Buffer<bf16>(rows * config.hidden * static_cast<int64_t>(draft.target_layers.size()));
  work.main_x = Buffer<bf16>(rows * config.hidden);
  work.draft_logits = Buffer<float>(draft_rows * config.vocab_size);
  work.markov = Buffer<bf16>(sequences * draft.markov_rank);
  work.confidence_in = Buffer<bf16>(sequences * (config.hidden + draft.markov_rank));
  work.confidence = Buffer<float>(sequences);
  for (Buffer<int32_t>* values : {&work.draft_positions, &work.draft_lanes, &work.draft_window_begin,
                                  &work.draft_window_end, &work.draft_num_fresh, &work.draft_block_begin})
    *values = Buffer<int32_t>(draft_rows);
}

}  // namespace

void allocate_workspace(Forward::State& state) {
  const ModelConfig& config = state.config;
  const int64_t sequences = state.has_draft() ? state.options.draft_sequences_max : 0;
  const int64_t draft_rows = sequences * config.draft.block_size;
  const int64_t rows = std::max(state.options.rows_max, draft_rows);
  allocate_streams(state.work, config, rows);
  allocate_attention(state.work, config, state.layout, rows, state.options.score_entries_max);
  allocate_experts(state.work, config, rows);
  allocate_engram(state.work, config, rows);
  if (state.has_draft()) allocate_draft(state.work, config, rows, sequences, draft_rows);
  const int64_t head_rows = std::max(state.options.logits_rows_max, draft_rows);
  state.work.final_rows = Buffer<bf16>(head_rows * config.hidden);
  state.work.final_norm = Buffer<bf16>(head_rows * config.hidden);
  state.work.logits = Buffer<float>(state.options.logits_rows_max * config.vocab_size);
}

int64_t workspace_bytes(const Workspace& work) {
  int64_t bytes = 0;
  const auto add = [&bytes](const auto&... buffers) { ((bytes += buffers.size_bytes()), ...); };
  add(work.streams, work.collapsed, work.input, work.output, work.pre, work.next_pre, work.post, work.comb, work.qr,
      work.q, work.kv, work.o, work.z, work.fresh, work.fresh_selected, work.pool_kv, work.pool_gate, work.latent,
      work.index_key, work.index_q, work.index_weight, work.scores, work.selected, work.candidates, work.router_logits,
      work.expert_weight, work.assignment_weight, work.expert, work.expert_begin, work.assignment_row, work.assignment,
      work.shared_begin, work.expert_out, work.shared_out, work.engram_rows, work.engram_kv, work.engram_ids,
      work.engram_places, work.engram_codes, work.engram_scales, work.offsets, work.image_rows, work.image_row,
      work.features, work.main_x, work.final_rows, work.final_norm, work.logits, work.draft_logits, work.markov,
      work.confidence_in, work.confidence, work.mean_weight, work.tokens, work.draft_positions, work.draft_lanes,
      work.draft_window_begin, work.draft_window_end, work.draft_num_fresh, work.draft_block_begin);
  return bytes;
}

}  // namespace deepinfer
