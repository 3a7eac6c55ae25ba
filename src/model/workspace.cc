// SPDX-License-Identifier: MIT
// Sizes of the work buffers, all from the limits.
#include <algorithm>
#include <numeric>
#include <vector>

#include "model/forward_state.h"

namespace deepinfer {
namespace {

void allocate_streams(Workspace& work, Device& device, const ModelConfig& config, int64_t rows) {
  Memory& memory = device.memory();
  const int64_t streams = config.num_streams, hidden = config.hidden;
  work.streams = Buffer<bf16>(memory, rows * streams * hidden);
  work.collapsed = Buffer<bf16>(memory, rows * hidden);
  work.input = Buffer<bf16>(memory, rows * hidden);
  work.output = Buffer<bf16>(memory, rows * hidden);
  work.pre = Buffer<float>(memory, rows * streams);
  work.next_pre = Buffer<float>(memory, rows * streams);
  work.post = Buffer<float>(memory, rows * streams);
  work.comb = Buffer<float>(memory, rows * streams * streams);
  std::vector<float> values(static_cast<size_t>(rows * streams), 1.0f / static_cast<float>(streams));
  work.mean_weight = constant_buffer<float>(device, values);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % static_cast<size_t>(streams) == 0 ? 1.0f : 0.0f;
  work.first_pre = constant_buffer<float>(device, values);
  const int64_t image_values = config.vision ? rows * hidden : 0;
  work.image_rows = Buffer<bf16>(memory, image_values);
  if (!device.is_host()) work.staged_images = Buffer<bf16>(device.staging(), image_values);
}

void allocate_attention(Workspace& work, Memory& memory, const ModelConfig& config, const CacheLayout& layout,
                        int64_t rows, int64_t score_entries) {
  work.qr = Buffer<bf16>(memory, rows * config.q_rank);
  work.q = Buffer<bf16>(memory, rows * config.num_heads * config.head_dim);
  work.kv = Buffer<bf16>(memory, rows * config.head_dim);
  work.o = Buffer<bf16>(memory, rows * config.num_heads * config.head_dim);
  work.z = Buffer<bf16>(memory, rows * config.output_groups * config.output_rank);
  work.fresh = Buffer<uint8_t>(memory, rows * layout.window_row_bytes);
  if (layout.sources.empty()) return;
  work.pool_kv = Buffer<float>(memory, rows * config.head_dim);
  work.pool_gate = Buffer<float>(memory, rows * config.head_dim);
  work.latent = Buffer<bf16>(memory, rows * config.head_dim);
  work.index_key = Buffer<bf16>(memory, rows * config.index_head_dim);
  work.index_q = Buffer<bf16>(memory, rows * config.index_heads * config.index_head_dim);
  work.index_weight = Buffer<bf16>(memory, rows * config.index_heads);
  work.scores = Buffer<float>(memory, score_entries);
  work.selected = Buffer<int32_t>(memory, rows * config.index_top_k);
  work.candidates = Buffer<int32_t>(memory, config.candidate_source_layer >= 0 ? rows * config.candidate_blocks : 0);
}

void allocate_experts(Workspace& work, Memory& memory, const ModelConfig& config, int64_t rows) {
  const int64_t experts = std::max(config.num_experts, config.draft.num_experts);
  const int64_t choices = std::max(config.experts_per_token, config.draft.experts_per_token);
  work.router_logits = Buffer<float>(memory, rows * experts);
  work.expert = Buffer<int32_t>(memory, rows * choices);
  work.expert_weight = Buffer<float>(memory, rows * choices);
  work.expert_begin = Buffer<int32_t>(memory, experts + 1);
  work.assignment_row = Buffer<int32_t>(memory, rows * choices);
  work.assignment_weight = Buffer<float>(memory, rows * choices);
  work.assignment = Buffer<int32_t>(memory, rows * choices);
  work.expert_out = Buffer<bf16>(memory, rows * choices * config.hidden);
  work.shared_out = Buffer<bf16>(memory, rows * config.hidden);
}

void allocate_engram(Workspace& work, Device& device, const ModelConfig& config, int64_t rows, bool reads_tables) {
  Memory& memory = device.memory();
  const EngramConfig& engram = config.engram;
  if (engram.empty()) return;
  const int64_t places = rows * engram.rows_per_token();
  const int64_t all_places = static_cast<int64_t>(engram.layers.size()) * places;
  work.engram_ids = Buffer<int64_t>(device.staging(), all_places);
  if (reads_tables) work.device_engram_ids = Buffer<int64_t>(memory, all_places);
  std::vector<int64_t> numbers(static_cast<size_t>(places));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  work.engram_places = constant_buffer<int64_t>(device, numbers);
  work.engram_bytes =
      Buffer<uint8_t>(memory, engram_places_of(engram, rows, static_cast<int>(engram.layers.size()) - 1).end);
  if (!device.is_host()) work.staged_engram = Buffer<uint8_t>(device.staging(), work.engram_bytes.size());
  work.engram_rows = Buffer<bf16>(memory, rows * engram.row_columns());
  work.engram_kv = Buffer<bf16>(memory, rows * (config.num_streams + 1) * config.hidden);
}

void allocate_draft(Workspace& work, Device& device, const ModelConfig& config, int64_t rows, int64_t sequences,
                    int64_t draft_rows) {
  Memory& memory = device.memory();
  const DraftConfig& draft = config.draft;
  work.features = Buffer<bf16>(memory, rows * config.hidden * static_cast<int64_t>(draft.target_layers.size()));
  work.main_x = Buffer<bf16>(memory, rows * config.hidden);
  work.draft_logits = Buffer<float>(memory, draft_rows * config.vocab_size);
  work.markov = Buffer<bf16>(memory, sequences * draft.markov_rank);
  work.confidence_in = Buffer<bf16>(memory, sequences * (config.hidden + draft.markov_rank));
  work.confidence = Buffer<float>(memory, draft_rows);
  std::vector<int32_t> numbers(static_cast<size_t>(draft_rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  work.row_numbers = constant_buffer<int32_t>(device, numbers);
  if (device.is_host()) return;
  work.host_draft_logits = Buffer<float>(device.staging(), work.draft_logits.size());
  work.host_confidence = Buffer<float>(device.staging(), draft_rows);
}

}  // namespace

Status allocate_workspace(Forward::State& state) {
  Device& device = state.device;
  Memory& memory = device.memory();
  for (StagedTables* tables : {&state.step_tables, &state.draft_tables, &state.chain_tables}) tables->allocate();
  const ModelConfig& config = state.config;
  const int64_t sequences = state.has_draft() ? state.options.draft_sequences_max : 0;
  const int64_t draft_rows = sequences * config.draft.block_size;
  const int64_t rows = std::max(state.options.rows_max, draft_rows);
  allocate_streams(state.work, device, config, rows);
  allocate_attention(state.work, memory, config, state.layout, rows, state.options.score_entries_max);
  allocate_experts(state.work, memory, config, rows);
  allocate_engram(state.work, device, config, rows, state.reads_tables());
  if (state.has_draft()) allocate_draft(state.work, device, config, rows, sequences, draft_rows);
  const int64_t head_rows = std::max(state.options.logits_rows_max, draft_rows);
  state.work.final_rows = Buffer<bf16>(memory, head_rows * config.hidden);
  state.work.final_norm = Buffer<bf16>(memory, head_rows * config.hidden);
  state.work.logits = Buffer<float>(memory, state.options.logits_rows_max * config.vocab_size);
  if (!device.is_host()) state.work.host_logits = Buffer<float>(device.staging(), state.work.logits.size());
  return device.status();
}

int64_t workspace_bytes(const Forward::State& state) {
  const Workspace& work = state.work;
  int64_t bytes = state.step_tables.size_bytes() + state.draft_tables.size_bytes() + state.chain_tables.size_bytes();
  const auto add = [&bytes](const auto&... buffers) { ((bytes += buffers.size_bytes()), ...); };
  add(work.streams, work.collapsed, work.input, work.output, work.pre, work.next_pre, work.post, work.comb, work.qr,
      work.q, work.kv, work.o, work.z, work.fresh, work.pool_kv, work.pool_gate, work.latent, work.index_key,
      work.index_q, work.index_weight, work.scores, work.selected, work.candidates, work.router_logits,
      work.expert_weight, work.assignment_weight, work.expert, work.expert_begin, work.assignment_row, work.assignment,
      work.expert_out, work.shared_out, work.engram_rows, work.engram_kv, work.engram_ids, work.engram_places,
      work.engram_bytes, work.image_rows, work.features, work.main_x, work.final_rows, work.final_norm, work.logits,
      work.draft_logits, work.row_numbers, work.markov, work.confidence_in, work.confidence, work.mean_weight,
      work.first_pre);
  return bytes;
}

}  // namespace deepinfer
