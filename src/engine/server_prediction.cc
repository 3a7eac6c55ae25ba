// SPDX-License-Identifier: MIT
#include "engine/server_prediction.h"

#include <algorithm>

#include "model/layer_roles.h"

namespace deepinfer {
namespace {

struct CacheCost {
  double bytes = 0, index_operations = 0, attention_operations = 0;
};

// Of one token behind `context` others.
CacheCost cache_cost(const ModelConfig& config, int64_t context) {
  CacheCost cost;
  Result<LayerRoles> roles = make_layer_roles(config);
  if (!roles.ok()) return cost;
  const double heads = config.num_heads, dim = config.head_dim;
  const double key_bytes = static_cast<double>(config.index_head_dim) * 17 / 32;  // codes and scales
  const double entry_bytes = dim * 9 / 16, window_bytes = dim * 33 / 32;
  for (int l = 0; l < config.num_layers; ++l) {
    const LayerRole& role = roles->layers[static_cast<size_t>(l)];
    const double visible = role.ratio > 0 ? static_cast<double>(context / role.ratio) : 0,
                 window = static_cast<double>(std::min<int64_t>(context, config.window)),
                 selected = std::min<double>(visible, config.index_top_k);
    cost.bytes += window * window_bytes + selected * entry_bytes;
    cost.attention_operations += 4 * (window + selected) * heads * dim;
    if (!role.selects || visible <= config.index_top_k) continue;
    const double candidates = static_cast<double>(config.candidate_blocks) * config.candidate_block_size;
    const double scored = role.uses_candidates ? std::min(visible, candidates) : visible;
    cost.bytes += scored * key_bytes;
    cost.index_operations += 2 * scored * static_cast<double>(config.index_heads) * config.index_head_dim;
  }
  return cost;
}

}  // namespace

std::span<const ServerCpu> server_cpus() {
  static constexpr ServerCpu kCpus[] = {{"AMD EPYC 9654 (Zen 4)", 96, 3.5, 460.8, 64},
                                        {"AMD EPYC 9755 (Zen 5)", 128, 3.6, 614.4, 128},
                                        {"AMD EPYC 9965 (Zen 5c)", 192, 3.2, 614.4, 128},
                                        {"Intel Xeon 8592+ (no AMX rows)", 64, 2.9, 358.4, 64},
                                        {"Intel Xeon 6980P (no AMX rows)", 128, 2.8, 844.8, 64}};
  return kCpus;
}

ServerPrediction predict(const ModelConfig& config, const ModelSize& size, const ServerCpu& cpu,
                         const KernelShares& shares, int64_t context_tokens) {
  const CacheCost cache = cache_cost(config, context_tokens);
  const double bandwidth = cpu.gigabytes_per_second * 1e9 * kSustained,
               peak = cpu.cores * cpu.all_core_ghz * 1e9 * cpu.bf16_flops_per_cycle;
  const double decode_s = static_cast<double>(size.decode_bytes) / (bandwidth * shares.gemv) + cache.bytes / bandwidth +
                          cache.index_operations / (2 * peak * shares.index);
  const double prefill_operations = 2 * static_cast<double>(size.prefill_parameters) + cache.attention_operations / 2;
  return {1 / decode_s, peak * shares.gemm / prefill_operations, static_cast<double>(size.decode_bytes), cache.bytes,
          cache.index_operations};
}

}  // namespace deepinfer
