// SPDX-License-Identifier: MIT
// What a checkpoint's configuration says, in one struct. Read from `config.json` (nested: text_config, vision_config)
// or from the flat `inference/config.json`; both forms give the same ModelConfig. Names follow the glossary; the file's
// name stands beside each field where it differs. Every number is checked (limits and the rules of the specification,
// model.md 1.4), so code that receives a ModelConfig may rely on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engram/engram_config.h"

namespace deepinfer {

enum class ScoreFunction { kSqrtSoftplus, kSigmoid, kSoftmax };
std::string_view to_string(ScoreFunction score);

// YaRN, for layers with a compress ratio above 0 (model.md 3.3). factor 1 = plain.
struct RopeScaling {
  double factor = 1;
  double beta_fast = 32, beta_slow = 1;
  int64_t original_context = 0;  // original_max_position_embeddings / original_seq_len
  bool operator==(const RopeScaling&) const = default;
};

struct DraftConfig {
  int num_layers = 0;  // num_nextn_predict_layers / n_mtp_layers; 0 = the model has no draft head
  int block_size = 0;  // dspark_block_size: drafted positions per pass; 0 = drafting is off
  TokenId noise_token_id = 0;
  std::vector<int> target_layers;  // layers whose input is captured, ascending
  int64_t markov_rank = 0;
  int num_experts = 0;  // already resolved: 0 in the file means the backbone's number
  int experts_per_token = 0;
  bool operator==(const DraftConfig&) const = default;
};

// The image encoder and its aligner (dspark-vision.md 3.1). The flat file prefixes the names with `vision_`.
struct VisionConfig {
  int num_layers = 0;
  int64_t hidden = 0;  // encoder width
  int num_heads = 0;
  int64_t inner = 0;   // intermediate_size: gate and up are `inner` rows each
  int patch_size = 0;  // pixels
  double rope_theta = 0;
  int downsample = 0;                // downsample_ratio: patches per token along each axis
  int64_t image_tokens_max = 0;      // max_image_tokens: of one image's span, delimiters and row ends included
  int64_t pixels_min = 0;            // min_pixels: smaller images are enlarged
  std::optional<double> aspect_max;  // max_wh_ratio

  int64_t patch_columns() const { return int64_t{3} * patch_size * patch_size; }
  int64_t aligner_in() const { return hidden * downsample * downsample; }
  bool operator==(const VisionConfig&) const = default;
};

struct ModelConfig {
  std::string architecture;
  TokenId bos_token_id = 0, eos_token_id = 1, pad_token_id = 2;
  TokenId image_token_id = -1;  // -1 where the model has no vision part

  int64_t vocab_size = 0;
  int64_t hidden = 0;  // hidden_size / dim: width of one residual stream
  int num_layers = 0;  // backbone only
  int num_heads = 0;
  int head_dim = 0;
  int rope_dim = 0;         // qk_rope_head_dim: the last channels of a head, rotated
  int64_t q_rank = 0;       // q_lora_rank
  int output_groups = 0;    // o_groups
  int64_t output_rank = 0;  // o_lora_rank, per group
  int window = 0;           // sliding_window
  int64_t context_max = 0;  // max_position_embeddings

  // Per layer, num_layers + draft.num_layers entries: 0 = window only, r > 0 = also attends the global KV of ratio r.
  std::vector<int> compress_ratios;
  std::vector<int> kv_source_layers;     // ascending
  std::vector<int> index_source_layers;  // ascending
  int index_heads = 0;
  int index_head_dim = 0;
  int index_top_k = 0;
  int candidate_source_layer = -1;  // < 0: no two-level selection
  int candidate_blocks = 0;         // candidate_topk_blocks
  int candidate_block_size = 0;

  double rope_theta = 0;           // layers of ratio 0
  double compress_rope_theta = 0;  // layers of ratio > 0
  RopeScaling rope_scaling;

  float norm_epsilon = 0;       // rms_norm_eps
  int num_streams = 0;          // hc_mult
  int sinkhorn_iterations = 0;  // hc_sinkhorn_iters
  float stream_epsilon = 0;     // hc_eps

  int num_experts = 0;  // n_routed_experts
  int experts_per_token = 0;
  int64_t expert_inner = 0;  // moe_intermediate_size, routed and shared
  float swiglu_limit = 0;    // 0 = no clamp
  ScoreFunction score = ScoreFunction::kSqrtSoftplus;
  bool normalize_scores = true;  // norm_topk_prob
  float routed_scale = 1;        // routed_scaling_factor / route_scale
  float gate_temperature = 1;    // gate_temp

  EngramConfig engram;
  DraftConfig draft;
  std::optional<VisionConfig> vision;

  int num_all_layers() const { return num_layers + draft.num_layers; }
  int compress_ratio(int layer) const {
    return compress_ratios[static_cast<size_t>(layer)];
  }  // draft layers follow the backbone's
  bool is_kv_source(int layer) const;
  bool is_index_source(int layer) const;
  // The layer whose global KV / top-k a backbone layer reads: the last source at or before it. -1 for ratio 0.
  int kv_source_of(int layer) const;
  int index_source_of(int layer) const;
  // Index of `layer` in engram.layers; -1 where it has no table.
  int engram_index(int layer) const;
  int num_mix_coefficients() const { return (2 + num_streams) * num_streams; }  // 24: pre, post, comb of one site
  bool operator==(const ModelConfig&) const = default;
};

// Errors: invalid_argument naming the field, its value and the rule. Unknown fields are ignored, as in the released
// files.
Result<ModelConfig> parse_model_config(std::string_view json_text);

// The rules alone, for configurations made in code.
Status check_model_config(const ModelConfig& config);

}  // namespace deepinfer
