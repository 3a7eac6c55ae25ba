// SPDX-License-Identifier: MIT
// What the files of the forward pass share: the model, the step's rows and the work buffers. Internal to forward*.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engram/table.h"
#include "model/engram_hash.h"
#include "model/expert_residency.h"
#include "model/forward.h"
#include "model/layer_roles.h"
#include "model/row_table.h"
#include "tensor/buffer.h"
#include "tensor/staged_tables.h"

namespace deepinfer {

// cos and sin of one set of positions.
struct RopeAngles {
  Buffer<float> cos, sin;
  int64_t num_rows = 0, num_pairs = 0;
  RopeAngles() = default;
  RopeAngles(Memory& memory, int64_t rows_max, int64_t pairs)
      : cos(memory, rows_max * pairs), sin(memory, rows_max * pairs), num_pairs(pairs) {}
  View<const float, dim::tokens, dim::rope_pairs> cosines() const { return {cos.data(), {num_rows, num_pairs}}; }
  View<const float, dim::tokens, dim::rope_pairs> sines() const { return {sin.data(), {num_rows, num_pairs}}; }
};

// A RowTable with its angles for layers of ratio 0 ([0]) and above ([1]).
struct StepRows {
  RowTable table;
  RopeAngles angles[2];
  Staged<int32_t> shared_begin;  // [2]: all rows belong to the shared expert
};

// What the host fills for a step, besides the row tables.
struct StepTables {
  Staged<TokenId> tokens;
  Staged<int32_t> image_row;        // [rows]
  Staged<int32_t> logits_source;    // [logits rows]: row of the decoder table
  Staged<int64_t> dropped_offsets;  // [rows]
  Staged<TokenId> ngrams;           // [rows, look_back], where the device hashes; else empty
};

// What it fills for a draft, and for one position of its chain.
struct DraftTables {
  Staged<TokenId> tokens;
  Staged<int32_t> positions, lanes, window_begin, window_end, num_fresh, block_begin;  // [draft rows]
  Staged<int32_t> head_source;   // [draft rows]: position-major to sequence-major
  Staged<int32_t> shared_begin;  // [2]
};
struct ChainTables {
  Staged<TokenId> previous;  // [sequences]
};

// Buffers of the layers, in the device's memory, sized from rows_max once. Names follow the golden traces.
struct Workspace {
  Buffer<bf16> streams, collapsed, input, output;  // [rows, S*D], [rows, D] x3
  Buffer<float> pre, next_pre, post, comb;         // [rows, S], [rows, S], [rows, S], [rows, S*S]
  Buffer<bf16> qr, q, kv, o, z;          // [rows, q_rank], [rows, H*hd], [rows, hd], [rows, H*hd], [rows, groups*rank]
  Buffer<uint8_t> fresh;                 // [rows, window_row_bytes]
  Buffer<float> pool_kv, pool_gate;      // [rows, hd]
  Buffer<bf16> latent, index_key;        // [rows, hd], [rows, index_head_dim]
  Buffer<bf16> index_q, index_weight;    // [rows, index_heads*index_head_dim], [rows, index_heads]
  Buffer<float> scores;                  // [score_entries_max]
  Buffer<int32_t> selected, candidates;  // [rows, top_k], [rows, candidate_blocks]
  Buffer<float> router_logits, expert_weight, assignment_weight;
  Buffer<int32_t> expert, expert_begin, assignment_row, assignment;
  Buffer<bf16> expert_out, shared_out;  // [rows*choices, D], [rows, D]
  Buffer<bf16> engram_rows, engram_kv;  // [rows, row_columns], [rows, (S+1)*D]
  Buffer<int64_t> engram_ids;           // [tables, rows, rows_per_token], on the host
  Buffer<int64_t> device_engram_ids;    // the same for the device, where it reads tables itself; else empty
  Buffer<int64_t> engram_places;        // [rows, rows_per_token] = 0, 1, 2 ...
  Buffer<uint8_t> engram_bytes;   // this step's rows of the tables: codes, then scales of one table after the other
  Buffer<uint8_t> staged_engram;  // the same as the host reads them; empty where ops run on the host
  Buffer<bf16> image_rows, staged_images;  // [rows, D], likewise
  Buffer<bf16> features, main_x;           // [rows, targets*D], [rows, D]
  Buffer<bf16> final_rows, final_norm;     // [max(logits rows, draft rows), D]
  Buffer<float> logits, draft_logits;
  Buffer<float> host_logits, host_draft_logits, host_confidence;  // the same for the host to read; empty likewise
  Buffer<int32_t> row_numbers;                                    // [draft rows] = 0, 1, 2 ...
  Buffer<bf16> markov, confidence_in;  // [sequences, markov_rank], [sequences, D + markov_rank]
  Buffer<float> confidence;
  Buffer<float> mean_weight, first_pre;  // [rows, S] constants: 1/S everywhere; 1 for the first stream, else 0
};

// A step's launches once recorded, and what they leave behind on the host.
struct StepGraph {
  bool has_run = false, swaps_pre = false;
  const StepRows* rows = nullptr;
  std::unique_ptr<DeviceGraph> recorded;
};
inline constexpr size_t kGraphsMax = 128;

struct Forward::State {
  Forward::Parts parts;
  const ModelWeights& weights;  // the checkpoint on the host
  const WeightViews& views;     // what ops read
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
  Device& device;
  std::map<std::vector<int64_t>, StepGraph> graphs;  // by shape
  StagedTables step_tables, draft_tables, chain_tables;
  StepTables step;
  DraftTables draft;
  ChainTables chain;
  Workspace work;
  DeviceHasher device_hasher;  // where the device reads Engram tables itself and the build can hash there

  // The step.
  Caches caches;
  StepRows all, boundary, decoder;
  const StepRows* rows = nullptr;     // what streams, pre and features hold
  std::vector<int32_t> used_experts;  // of the layer under way, ascending
  bool drops_rows = false;            // some rows stop at the last kv source
  std::vector<GroupTable> groups;     // per source
  std::vector<RopeAngles> group_angles;
  int64_t num_logits_rows = 0, num_head_rows = 0;  // the second with padding
  bool pads = false, has_input = false;  // rows of this step are padded; work.input is the next sublayer's already
  RopeAngles draft_angles;
  int64_t num_draft_rows = 0, num_draft_sequences = 0;
  TraceSink trace;

  State(const Forward::Parts& p, const CacheLayout& l, const ForwardOptions& o)
      : parts(p),
        weights(p.weights),
        views(p.device_weights ? *p.device_weights : p.weights),
        config(p.weights.config()),
        kernels(p.kernels),
        context(p.context),
        layout(l),
        options(o),
        device(p.context.device ? *p.context.device : host_device()),
        step_tables(device),
        draft_tables(device),
        chain_tables(device) {}

  const LayerWeights& layer_weights(int layer) const {
    return layer < config.num_layers ? views.layers[static_cast<size_t>(layer)]
                                     : views.draft.layers[static_cast<size_t>(layer - config.num_layers)];
  }
  const LayerRole& role(int layer) const { return roles.layers[static_cast<size_t>(layer)]; }
  int64_t num_rows() const { return rows ? rows->table.num_rows() : 0; }
  // Begin of the shared expert's one range of rows: of this step's rows, or of the draft's.
  const Staged<int32_t>& shared_begin() const { return rows ? rows->shared_begin : draft.shared_begin; }
  // The device reads rows of Engram tables itself.
  bool reads_tables() const {
    return !device.is_host() && !config.engram.empty() &&
           views.layers[static_cast<size_t>(config.engram.layers[0])].engram.table.codes != nullptr;
  }
  bool hashes_on_device() const { return reads_tables() && kEngramHashCuda && device.stream() != nullptr; }
  bool has_draft() const { return !weights.draft.layers.empty() && config.draft.block_size > 0; }
};

// The tables are reserved before; all of them get their memory here.
Status allocate_workspace(Forward::State& state);
int64_t workspace_bytes(const Forward::State& state);

// Device memory with the given values.
template <typename T>
Buffer<T> constant_buffer(Device& device, std::span<const T> values) {
  const int64_t size = static_cast<int64_t>(values.size());
  Buffer<T> staged(device.staging(), size), buffer(device.memory(), size);
  if (!staged.data() || !buffer.data()) return {};
  std::copy(values.begin(), values.end(), staged.data());
  device.copy(buffer.data(), staged.data(), buffer.size_bytes());
  return device.wait().ok() ? std::move(buffer) : Buffer<T>();
}

// One sublayer input to output, [rows, D] each; `work.input` holds the normed input, `work.output` receives the result.
// Attention of the last kv source writes keys for all rows and leaves streams, pre, input and selections at the rows
// that go on.
void run_attention(Forward::State& state, int layer);
Status run_experts(Forward::State& state, int layer, int64_t num_rows, const uint8_t* is_image);

struct EngramRows {
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
};
EngramRows engram_rows_of(Forward::State& state, int table);
Status hash_engram_rows(Forward::State& state, const RowBatch& batch);
Status bring_engram_rows(Forward::State& state);

// Entries of one row of index scores: on a device a step of a size, so that steps of a shape are alike as they grow.
int64_t score_width(const Forward::State& state, int64_t max_visible);

// Few sizes instead of many: what `num` rows are padded to, at most `most`.
int64_t padded_size(int64_t num, int64_t most);

std::vector<int64_t> step_shape(const Forward::State& state);
// `shape` says all that the ops' addresses and sizes depend on; empty: they run unrecorded.
Status run_recorded(Forward::State& state, const std::vector<int64_t>& shape, const std::function<Status()>& ops);

// Shared by backbone and draft layers. Streams and pre hold num_rows rows.
void collapse_and_norm(Forward::State& state, const float* pre, const Bf16Vector& weight, int64_t num_rows);
// Into next_pre, post and comb; `site` names it in traces.
void mix_streams(Forward::State& state, int layer, std::string_view site, const StreamMixWeights& mix, int64_t rows);
// next_norm: the weight of a norm of the updated streams behind, then done here (state.has_input), or null.
void update_streams(Forward::State& state, int64_t num_rows, const Bf16Vector* next_norm);
Status run_moe_sublayer(Forward::State&, int layer, int64_t rows, const uint8_t* is_image, const Bf16Vector* next_norm);
// Queries into work.q (rotated) and work.qr; keys and values of the rows into packed rows.
void project_queries(Forward::State& state, int layer, int64_t num_rows, const RopeAngles& angles);
void project_window_keys(Forward::State& state, int layer, const bf16* x, int64_t num_rows, const RopeAngles& angles,
                         const PackedPlace& to);
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
  if (state.device.is_host()) return state.trace(TraceTensor{layer, name, dtype, data, std::move(shape)});
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  Buffer<T> staged(state.device.staging(), size);
  state.device.copy(staged.data(), data, staged.size_bytes());
  if (state.device.wait().ok()) state.trace(TraceTensor{layer, name, dtype, staged.data(), std::move(shape)});
}

// Rows of a step's buffer that go on move up, in place.
template <typename T>
void keep_rows(const Forward::State& state, const RowTable& kept, T* data, int64_t num_rows, int64_t row_elements) {
  state.kernels.gather_rows(state.context,
                            {.rows = as_bytes(data, num_rows, row_elements, row_elements),
                             .source = kept.sources(),
                             .out = as_writable_bytes(data, kept.num_rows(), row_elements, row_elements)});
}

}  // namespace deepinfer
