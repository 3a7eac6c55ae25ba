// SPDX-License-Identifier: MIT
#include "model/layer_roles.h"

#include <algorithm>
#include <string>

#include "model/cache_layout.h"

namespace deepinfer {
namespace {

int index_in(const std::vector<int>& list, int value) {
  const auto found = std::ranges::find(list, value);
  return found == list.end() ? -1 : static_cast<int>(found - list.begin());
}

// Candidates are blocks of groups, so they mean something only to a layer that groups positions in the same way.
bool uses_candidates(const ModelConfig& config, int layer) {
  const int source = config.candidate_source_layer;
  return source >= 0 && source < layer && config.compress_ratio(layer) == config.compress_ratio(source);
}

LayerRole backbone_role(const ModelConfig& config, int layer, const std::vector<int>& sources) {
  LayerRole role;
  role.ratio = config.compress_ratio(layer);
  role.engram = config.engram_index(layer);
  role.target = index_in(config.draft.target_layers, layer);
  if (role.ratio == 0) return role;
  role.source = index_in(sources, config.kv_source_of(layer));
  role.makes_keys = config.is_kv_source(layer);
  role.selects = config.is_index_source(layer);
  role.makes_candidates = role.selects && config.candidate_source_layer == layer;
  role.uses_candidates = role.selects && uses_candidates(config, layer);
  return role;
}

}  // namespace

Result<LayerRoles> make_layer_roles(const ModelConfig& config) {
  LayerRoles roles;
  roles.sources = config.kv_source_layers;
  for (const int layer : roles.sources) {
    const int ratio = config.compress_ratio(layer);
    if (ratio < 1 || kBlockPositions % ratio != 0)
      return unimplemented("layer " + std::to_string(layer) + ": compress ratio " + std::to_string(ratio) +
                           " does not divide a block of " + std::to_string(kBlockPositions) + " tokens");
    roles.source_ratios.push_back(ratio);
    roles.ratio_max = std::max(roles.ratio_max, ratio);
  }
  for (int layer = 0; layer < config.num_layers; ++layer)
    roles.layers.push_back(backbone_role(config, layer, roles.sources));
  for (int layer = 0; layer < config.draft.num_layers; ++layer) roles.layers.push_back(LayerRole{});
  roles.num_encoder_layers = roles.sources.empty() ? config.num_layers : roles.sources.back() + 1;
  return roles;
}

}  // namespace deepinfer
