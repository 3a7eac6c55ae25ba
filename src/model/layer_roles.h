// SPDX-License-Identifier: MIT
// What each layer does, worked out once from the configuration (model.md 3.0): which global KV it reads, whether it
// makes keys, selects, or proposes candidates. Indices into `sources` number the kv-source layers in ascending order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "model/config.h"

namespace deepinfer {

struct LayerRole {
  int ratio = 0;            // 0: window only
  int source = -1;          // whose global KV and index keys it reads; -1 at ratio 0
  bool makes_keys = false;  // kv source: owns a compressor and index keys
  bool selects = false;     // index source: scores and picks; the others reuse the last selection
  bool makes_candidates = false;
  bool uses_candidates = false;
  int engram = -1;  // index of its Engram table
  int target = -1;  // index among the draft head's target layers
};

struct LayerRoles {
  std::vector<LayerRole> layers;  // backbone, then draft layers
  std::vector<int> sources;       // kv-source layers, ascending
  std::vector<int> source_ratios;
  // Layers up to and including the last kv source; every later layer owns SWA KV only. All layers where there is no
  // source.
  int num_encoder_layers = 0;
  int ratio_max = 1;

  int num_layers() const { return static_cast<int>(layers.size()); }
  int num_sources() const { return static_cast<int>(sources.size()); }
};

// Errors: unimplemented for a ratio that does not divide a block of 128 tokens.
Result<LayerRoles> make_layer_roles(const ModelConfig& config);

}  // namespace deepinfer
