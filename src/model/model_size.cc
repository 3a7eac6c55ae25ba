// SPDX-License-Identifier: MIT
#include "model/model_size.h"

#include <algorithm>
#include <string_view>

namespace deepinfer {
namespace {

void add(PartSize& size, const WeightRow& row) {
  ++size.num_tensors;
  size.parameters += row.num_parameters();
  size.bytes += row.size_bytes();
}

bool is_backbone(WeightPart part) {
  return part != WeightPart::kEngramTables && part != WeightPart::kEngramLinears && part != WeightPart::kDraft &&
         part != WeightPart::kVision;
}

// Of a routed expert's tensors, experts_per_token run: numbering does not matter, all experts are of one size.
bool is_active(const ModelConfig& config, const WeightRow& row) {
  return row.layer >= 0 && row.layer < config.num_layers && row.part != WeightPart::kEngramTables &&
         row.expert < config.experts_per_token;
}

// In prefill the last kv source only needs what fills its caches.
bool fills_global_kv(const WeightRow& row) {
  return row.name.find(".attn.compressor.") != std::string::npos || row.name.ends_with(".attn.indexer.wk.weight") ||
         row.name.ends_with(".attn.indexer.k_norm.weight");
}

}  // namespace

ModelSize measure_model(const ModelConfig& config, std::span<const WeightRow> table) {
  ModelSize size;
  const int last_source = config.kv_source_layers.empty() ? config.num_layers : config.kv_source_layers.back();
  for (const WeightRow& row : table) {
    add(size.parts[static_cast<size_t>(row.part)], row);
    add(size.total, row);
    if (is_backbone(row.part)) size.backbone_parameters += row.num_parameters();
    if (!is_active(config, row)) continue;
    size.decode_parameters += row.num_parameters();
    size.decode_bytes += row.size_bytes();
    if (row.layer < last_source || (row.layer == last_source && fills_global_kv(row)))
      size.prefill_parameters += row.num_parameters();
  }
  size.decode_parameters += size.part(WeightPart::kHead).parameters;
  size.decode_bytes += size.part(WeightPart::kHead).bytes;
  const EngramConfig& e = config.engram;
  const int64_t row_bytes = e.head_dim + e.head_dim / kScaleBlock;
  size.decode_bytes += static_cast<int64_t>(e.layers.size()) * e.rows_per_token() * row_bytes;
  return size;
}

double global_bytes_per_token(const ModelConfig& config) {
  double bytes = 0;
  for (const int layer : config.kv_source_layers)
    bytes +=
        static_cast<double>(global_entry_bytes(config.head_dim, config.index_head_dim)) / config.compress_ratio(layer);
  return bytes;
}

int64_t packed_state_bytes(const ModelConfig& config) {
  int64_t bytes = config.num_all_layers() * config.window * window_entry_bytes(config.head_dim);
  for (const int layer : config.kv_source_layers)  // up to r - 1 rows of k and s, fp32
    bytes += (config.compress_ratio(layer) - 1) * int64_t{2} * config.head_dim * static_cast<int64_t>(sizeof(float));
  if (!config.engram.empty()) bytes += (config.engram.ngram_max - 1) * static_cast<int64_t>(sizeof(int64_t));
  return bytes;
}

}  // namespace deepinfer
