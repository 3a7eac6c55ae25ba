// SPDX-License-Identifier: MIT
// Weights as typed views into the mapped shards: packed formats stay packed, nothing is read before it is used.
// Shapes are those of the specification, model.md 2, with every size from ModelConfig. Where a view is default-made
// (`empty()`), this layer has no such tensor.
//
// Scales that are NaN are not looked for at open (that would read the whole checkpoint) but when a part is first
// touched: call `touch_*` before the first use of a part in a step; after the first success it costs one atomic load.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "tensor/buffer.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

// One site of the residual-stream mixing (model.md 3.2): coefficients = fn x, scaled and shifted.
struct StreamMixWeights {
  F32Matrix fn;     // [(2+streams)*streams, streams*hidden]: pre rows, post rows, comb rows
  F32Vector base;   // [(2+streams)*streams]
  F32Vector scale;  // [3]: pre, post, comb
};

struct CompressorWeights {  // kv-source layers only
  Bf16Matrix wkv;           // [head_dim, hidden]
  Bf16Matrix wgate;         // [head_dim, hidden]; empty at ratio 1
  Bf16Vector norm;          // [head_dim]
};

struct IndexerWeights {
  Fp8Matrix wq_b;           // [index_heads*index_head_dim, q_rank]; index-source layers
  Bf16Matrix weights_proj;  // [index_heads, hidden]; index-source layers
  Bf16Matrix wk;            // [index_head_dim, head_dim]; kv-source layers
  Bf16Vector k_norm;        // [index_head_dim]; kv-source layers
};

struct AttentionWeights {
  F32Vector sink;      // [heads]
  Fp8Matrix wq_a;      // [q_rank, hidden]
  Bf16Vector q_norm;   // [q_rank]
  Fp8Matrix wq_b;      // [heads*head_dim, q_rank]
  Fp8Matrix wkv;       // [head_dim, hidden]
  Bf16Vector kv_norm;  // [head_dim]
  Fp8Matrix wo_a;      // [groups*output_rank, heads*head_dim/groups]
  Fp8Matrix wo_b;      // [hidden, groups*output_rank]
  CompressorWeights compressor;
  IndexerWeights indexer;
};

struct ExpertWeights {  // routed
  Fp4Matrix w1, w3;     // [expert_inner, hidden]: gate, up
  Fp4Matrix w2;         // [hidden, expert_inner]
};

struct SharedExpertWeights {
  Fp8Matrix w1, w3;  // [expert_inner, hidden]
  Fp8Matrix w2;      // [hidden, expert_inner]
};

struct MoeWeights {
  Bf16Matrix gate;       // [experts, hidden]
  F32Vector bias;        // [experts], selection only
  F32Vector image_bias;  // [experts], instead of bias for image-span tokens; empty without vision
  std::vector<ExpertWeights> experts;
  SharedExpertWeights shared;
};

struct EngramWeights {
  Fp8Rows table;        // [num_rows, engram head_dim]
  Fp8Matrix wkv;        // [(streams+1)*hidden, rows_per_token*head_dim]: a key per stream, then the value
  Bf16Matrix q_weight;  // [streams, hidden]
  Bf16Matrix k_weight;  // [streams, hidden]
};

struct LayerWeights {
  StreamMixWeights attention_mix, moe_mix;  // hc_attn_*, hc_ffn_*
  Bf16Vector attention_norm, moe_norm;      // [hidden]
  AttentionWeights attention;
  MoeWeights moe;
  EngramWeights engram;  // layers of config.engram only
};

struct DraftWeights {
  std::vector<LayerWeights> layers;  // ratio 0, without Engram
  Fp8Matrix main_proj;               // [hidden, hidden * target layers]
  Bf16Vector main_norm;              // [hidden]
  Bf16Vector norm;                   // [hidden]
  Bf16Matrix markov_embed;           // [vocab, markov_rank]
  Bf16Matrix markov_head;            // [vocab, markov_rank]
  Bf16Vector confidence;             // [hidden + markov_rank]
};

struct VisionBlockWeights {
  Bf16Vector norm1, norm2;  // [vision hidden]
  Bf16Matrix wqkv;          // [3*hidden, hidden]: rows of q, then k, then v
  Bf16Vector wqkv_bias;     // [3*hidden]
  Bf16Matrix wo;            // [hidden, hidden]
  Bf16Vector wo_bias;       // [hidden]
  Bf16Matrix mlp_w1;        // [2*inner, hidden]: gate rows, then up rows; no bias
  Bf16Matrix mlp_w2;        // [hidden, inner]; no bias
};

// `vision` knows its own structs (it stands beside model in the layers); the engine hands these views over to it.
struct VisionWeights {
  Bf16Matrix patch_embed;  // [hidden, 3*patch*patch]
  Bf16Vector patch_embed_bias;
  std::vector<VisionBlockWeights> blocks;
  Bf16Vector norm;        // [hidden]
  Bf16Matrix aligner_w1;  // [model hidden, hidden*downsample^2]
  Bf16Vector aligner_w1_bias;
  Bf16Matrix aligner_w2;  // [model hidden, model hidden]
  Bf16Vector aligner_w2_bias;
  Bf16Vector image_start, image_end, image_newline;  // [model hidden]: rows that replace the embedding
};

// All of a model's tensors.
struct WeightViews {
  Bf16Matrix embed;                  // [vocab, hidden]
  Bf16Matrix head;                   // [vocab, hidden]
  Bf16Vector norm;                   // [hidden]
  std::vector<LayerWeights> layers;  // backbone
  DraftWeights draft;                // layers empty without a draft head
  VisionWeights vision;              // blocks empty without a vision part
};

class ModelWeights : public WeightViews {
 public:
  // Binds every tensor of `checkpoint`. Reads headers only, besides the few tensors whose bytes are not aligned for
  // their type (they are copied). Errors: corruption that names each unknown, missing or misshapen tensor
  // (weight_table.h).
  static Result<ModelWeights> bind(std::shared_ptr<const Checkpoint> checkpoint);
  ~ModelWeights();
  ModelWeights(ModelWeights&&) noexcept;

  const ModelConfig& config() const { return checkpoint_->config(); }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const LayerWeights& layer(int l) const { return layers[static_cast<size_t>(l)]; }

  // Looks for NaN scales in the dense tensors of a layer, or in one routed expert, at the first call; afterwards free.
  // `layer` counts draft layers after the backbone's. Thread-safe. Errors: corruption, naming the tensor and the
  // scale's place. The Engram tables are checked row by row where they are read (engram/table.h).
  Status touch_layer(int layer) const { return check_scales(layer, -1); }
  Status touch_expert(int layer, int expert) const { return check_scales(layer, expert); }

 private:
  // The scales of one quantised tensor; `row` is its number in the weight table.
  struct Scales {
    int layer, expert;
    uint32_t row;
    std::span<const uint8_t> bytes;
  };
  struct TouchStates;

  ModelWeights();
  Status check_scales(int layer, int expert) const;

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::vector<Buffer<uint8_t>> copies_;  // of tensors whose bytes in the file are not aligned
  std::vector<Scales> scales_;           // ordered by (layer, expert)
  std::unique_ptr<TouchStates> touched_;
};

}  // namespace deepinfer
