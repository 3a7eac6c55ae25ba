// SPDX-License-Identifier: MIT
// Parameters and bytes of a model by part, and what one token costs in bytes: pure arithmetic over the weight table
// (specification, model.md 4.6, 5.1 and 6).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/weight_table.h"

namespace deepinfer {

struct PartSize {
  int64_t num_tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;  // with block scales
};

struct ModelSize {
  std::array<PartSize, kNumWeightParts> parts;
  PartSize total;
  int64_t backbone_parameters = 0;  // without Engram, drafts and vision
  int64_t decode_parameters = 0;    // of the layers and the head, active for one decoded token
  int64_t prefill_parameters =
      0;                     // active for one prompt token: layers before the last kv source, its compressor and keys
  int64_t decode_bytes = 0;  // weights read to decode one token, alone in its batch; with its Engram rows

  const PartSize& part(WeightPart p) const { return parts[static_cast<size_t>(p)]; }
};

ModelSize measure_model(const ModelConfig& config, std::span<const WeightRow> table);

// One entry of compressed KV and its index key: e2m1 codes with an e4m3 scale per 16, e2m1 codes with an e8m0 scale
// per 32.
constexpr int64_t global_entry_bytes(int64_t head_dim, int64_t index_head_dim) {
  return head_dim / 2 + head_dim / 16 + index_head_dim / 2 + index_head_dim / 32;
}
// One position of a window ring: e4m3 codes with an e8m0 scale per 32.
constexpr int64_t window_entry_bytes(int64_t head_dim) { return head_dim + head_dim / 32; }

static_assert(global_entry_bytes(512, 128) == 356);
static_assert(3 * global_entry_bytes(512, 128) / 2 + global_entry_bytes(512, 128) ==
              890);  // three sources of ratio 2, one of 1
static_assert(window_entry_bytes(512) == 528);
static_assert(40 * 128 * window_entry_bytes(512) == 2703360);

// Global KV of one token, over all kv sources; a fraction where ratios do not divide.
double global_bytes_per_token(const ModelConfig& config);

// Everything private to a sequence, packed as a record on disk (model.md 5.1, decision 25): window rings of all layers,
// pending compressor rows, Engram history. The engine's lanes take more, for their rings leave room for verify rows.
int64_t packed_state_bytes(const ModelConfig& config);

}  // namespace deepinfer
