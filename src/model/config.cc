// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <algorithm>

#include "engram/hash_plan.h"

namespace deepinfer {
namespace {

std::string number(int64_t n) { return std::to_string(n); }

Status must_be_multiple(const char* name, int64_t value, int64_t of) {
  if (value % of == 0) return {};
  return invalid_argument(std::string(name) + " is " + number(value) + ", expected a multiple of " + number(of));
}

Status check_widths(const ModelConfig& c) {
  // Reduction lengths of quantised linears come in blocks of 32 columns.
  TRY(must_be_multiple("hidden_size", c.hidden, 32));
  TRY(must_be_multiple("q_lora_rank", c.q_rank, 32));
  TRY(must_be_multiple("moe_intermediate_size", c.expert_inner, 32));
  TRY(must_be_multiple("head_dim", c.head_dim, 32));
  TRY(must_be_multiple("index_head_dim", c.index_head_dim, 32));
  TRY(must_be_multiple("qk_rope_head_dim", c.rope_dim, 2));
  if (c.rope_dim > c.head_dim || c.rope_dim > c.index_head_dim)
    return invalid_argument("qk_rope_head_dim is " + number(c.rope_dim) + ", more than head_dim (" +
                            number(c.head_dim) + ") or index_head_dim (" + number(c.index_head_dim) + ")");
  if (c.num_heads % c.output_groups != 0)
    return invalid_argument("o_groups is " + number(c.output_groups) + ", no divisor of the " + number(c.num_heads) +
                            " heads");
  // Each group's rows must begin at a row of scale tiles.
  return must_be_multiple("o_lora_rank", c.output_rank, 32);
}

Status check_layer_list(const char* name, const std::vector<int>& layers, int num_layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] >= num_layers)
      return invalid_argument(std::string(name) + " names layer " + number(layers[i]) + " of " + number(num_layers));
    if (i > 0 && layers[i] <= layers[i - 1]) return invalid_argument(std::string(name) + " is not in ascending order");
  }
  return {};
}

Status check_ratios(const ModelConfig& c) {
  if (c.compress_ratios.size() != static_cast<size_t>(c.num_all_layers()))
    return invalid_argument("compress_ratios has " + number(static_cast<int64_t>(c.compress_ratios.size())) +
                            " entries, expected " + number(c.num_layers) + " or, with the draft layers, " +
                            number(c.num_all_layers()));
  for (int l = c.num_layers; l < c.num_all_layers(); ++l)
    if (c.compress_ratio(l) != 0)
      return invalid_argument("compress_ratios: draft layer " + number(l) + " has ratio " +
                              number(c.compress_ratio(l)) + ", expected 0");
  for (const int ratio : c.compress_ratios)
    if (ratio < 0 || ratio > 128) return invalid_argument("compress_ratios: " + number(ratio) + ", expected 0 to 128");
  return {};
}

// A layer with ratio r > 0 reads KV and a selection of earlier or own sources, all of the same ratio.
Status check_sources(const ModelConfig& c) {
  TRY(check_layer_list("kv_source_layer_ids", c.kv_source_layers, c.num_layers));
  TRY(check_layer_list("index_source_layer_ids", c.index_source_layers, c.num_layers));
  for (const auto& [name, layers] :
       {std::pair("kv_source_layer_ids", &c.kv_source_layers), {"index_source_layer_ids", &c.index_source_layers}})
    for (const int l : *layers)
      if (c.compress_ratio(l) == 0)
        return invalid_argument(std::string(name) + " names layer " + number(l) + ", whose compress ratio is 0");
  for (int l = 0; l < c.num_layers; ++l) {
    const int ratio = c.compress_ratio(l);
    if (ratio == 0) continue;
    for (const auto& [what, source] : {std::pair("kv", c.kv_source_of(l)), {"index", c.index_source_of(l)}}) {
      const std::string where = "layer " + number(l) + " has compress ratio " + number(ratio);
      if (source < 0) return invalid_argument(where + ", but no " + what + " source stands at or before it");
      if (c.compress_ratio(source) != ratio)
        return invalid_argument(where + ", its " + what + " source " + number(source) + " has " +
                                number(c.compress_ratio(source)));
    }
  }
  return {};
}

Status check_candidates(const ModelConfig& c) {
  const int source = c.candidate_source_layer;
  if (source < 0) return {};
  if (!c.is_index_source(source))
    return invalid_argument("candidate_source_layer_id " + number(source) + " is no index source");
  if (c.candidate_blocks < 1 || c.candidate_block_size < 1)
    return invalid_argument(
        "candidate_topk_blocks and candidate_block_size must be positive where there is a candidate source");
  // Fewer candidates than the top-k takes would leave the selection undefined; the newest block may be partly filled.
  const int64_t least = int64_t{c.candidate_blocks} * c.candidate_block_size - (c.candidate_block_size - 1);
  if (least < c.index_top_k)
    return invalid_argument("candidate_topk_blocks " + number(c.candidate_blocks) + " of " +
                            number(c.candidate_block_size) + " leave at least " + number(least) +
                            " candidates, index_topk needs " + number(c.index_top_k));
  for (const int l : c.index_source_layers)
    if (l > source && c.compress_ratio(l) != c.compress_ratio(source))
      return invalid_argument("index source " + number(l) + " comes after the candidate source " + number(source) +
                              " but has another compress ratio");
  return {};
}

Status check_experts(const ModelConfig& c) {
  if (c.experts_per_token > c.num_experts)
    return invalid_argument("num_experts_per_tok is " + number(c.experts_per_token) + " of " + number(c.num_experts) +
                            " experts");
  if (c.draft.num_layers > 0 && (c.draft.experts_per_token > c.draft.num_experts || c.draft.experts_per_token < 1))
    return invalid_argument("dspark_num_experts_per_tok is " + number(c.draft.experts_per_token) + " of " +
                            number(c.draft.num_experts) + " experts");
  return {};
}

Status check_token_id(const char* name, TokenId id, const ModelConfig& c) {
  if (id >= 0 && id < c.vocab_size) return {};
  return invalid_argument(std::string(name) + " is " + number(id) + ", the vocabulary has " + number(c.vocab_size) +
                          " ids");
}

Status check_token_ids(const ModelConfig& c) {
  TRY(check_token_id("bos_token_id", c.bos_token_id, c));
  TRY(check_token_id("eos_token_id", c.eos_token_id, c));
  TRY(check_token_id("pad_token_id", c.pad_token_id, c));
  if (c.vision) TRY(check_token_id("image_token_id", c.image_token_id, c));
  if (!c.engram.empty()) TRY(check_token_id("engram_pad_token_id", c.engram.pad_token_id, c));
  if (c.draft.num_layers > 0) TRY(check_token_id("dspark_noise_token_id", c.draft.noise_token_id, c));
  return {};
}

Status check_engram(const ModelConfig& c) {
  const EngramConfig& e = c.engram;
  if (e.empty()) return {};
  for (size_t i = 0; i < e.layers.size(); ++i) {
    if (e.layers[i] >= c.num_layers)
      return invalid_argument("engram_layer_ids names layer " + number(e.layers[i]) + " of " + number(c.num_layers));
    if (std::count(e.layers.begin(), e.layers.end(), e.layers[i]) > 1)
      return invalid_argument("engram_layer_ids names layer " + number(e.layers[i]) + " twice");
  }
  if (e.num_rows.size() != e.layers.size())
    return invalid_argument("engram_num_embeddings has " + number(static_cast<int64_t>(e.num_rows.size())) +
                            " entries, engram_layer_ids " + number(static_cast<int64_t>(e.layers.size())));
  TRY(must_be_multiple("engram_head_dim", e.head_dim, 32));
  if (e.num_token_classes > c.vocab_size)
    return invalid_argument("engram_compressed_vocab_size is " + number(e.num_token_classes) + ", more than the " +
                            number(c.vocab_size) + " token ids");
  ASSIGN_OR_RETURN(const HashPlan plan, make_hash_plan(e));
  for (size_t i = 0; i < e.layers.size(); ++i)
    if (plan.layers[i].num_rows() != e.num_rows[i])
      return invalid_argument("engram_num_embeddings: " + number(e.num_rows[i]) + " rows for layer " +
                              number(e.layers[i]) + ", its primes sum to " + number(plan.layers[i].num_rows()));
  return {};
}

Status check_draft(const ModelConfig& c) {
  if (c.draft.num_layers == 0) return {};
  if (c.draft.target_layers.empty()) return invalid_argument("dspark_target_layer_ids is empty");
  for (const int l : c.draft.target_layers)
    if (l < 0 || l >= c.num_layers)
      return invalid_argument("dspark_target_layer_ids names layer " + number(l) + " of " + number(c.num_layers));
  return {};
}

Status check_vision(const ModelConfig& c) {
  if (!c.vision) return {};
  const VisionConfig& v = *c.vision;
  // Two axes of rotated pairs share a head.
  if (v.hidden % v.num_heads != 0 || v.hidden / v.num_heads % 4 != 0)
    return invalid_argument("vision hidden_size " + number(v.hidden) + " over " + number(v.num_heads) +
                            " heads: a head must be a multiple of 4 wide");
  return {};
}

}  // namespace

std::string_view to_string(ScoreFunction score) {
  switch (score) {
    case ScoreFunction::kSqrtSoftplus: return "sqrtsoftplus";
    case ScoreFunction::kSigmoid: return "sigmoid";
    case ScoreFunction::kSoftmax: return "softmax";
  }
  return "";
}

namespace {
bool contains(const std::vector<int>& layers, int layer) {
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}
int last_at_or_before(const std::vector<int>& layers, int layer) {
  int found = -1;
  for (const int l : layers)
    if (l <= layer) found = std::max(found, l);
  return found;
}
}  // namespace

bool ModelConfig::is_kv_source(int layer) const { return contains(kv_source_layers, layer); }
bool ModelConfig::is_index_source(int layer) const { return contains(index_source_layers, layer); }
int ModelConfig::kv_source_of(int layer) const {
  return layer >= num_layers || compress_ratio(layer) == 0 ? -1 : last_at_or_before(kv_source_layers, layer);
}
int ModelConfig::index_source_of(int layer) const {
  return layer >= num_layers || compress_ratio(layer) == 0 ? -1 : last_at_or_before(index_source_layers, layer);
}
int ModelConfig::engram_index(int layer) const {
  const auto at = std::find(engram.layers.begin(), engram.layers.end(), layer);
  return at == engram.layers.end() ? -1 : static_cast<int>(at - engram.layers.begin());
}

Status check_model_config(const ModelConfig& config) {
  TRY(check_widths(config));
  TRY(check_ratios(config));
  TRY(check_sources(config));
  TRY(check_candidates(config));
  TRY(check_experts(config));
  TRY(check_token_ids(config));
  TRY(check_draft(config));
  TRY(check_vision(config));
  return check_engram(config);
}

}  // namespace deepinfer
