// SPDX-License-Identifier: MIT
// Bytes of everything a sequence keeps between steps (model.md 4.2-4.6, 5.1), and where each piece stands.
//
// Block (global KV of kBlockPositions tokens), one contiguous run of block_bytes:
//   for each kv-source layer, ascending:  [rows = positions / ratio] x (e2m1 nibbles | e4m3 scales)   compressed KV
//                                         [rows] x (e2m1 nibbles | e8m0 scales)                       index keys
// Lane (private state of a running sequence), per layer and lane:
//   window ring: slot = position mod ring_slots, each (e4m3 codes | e8m0 scales) of one position. ring_slots leaves
//   room for a
//     rejected verify run, so nothing has to be copied back (decision 3); a position is always written before it is
//     read.
//   compressor tail (ratio > 1): slot = position mod tail_slots, raw fp32 (k, s) rows: positions, not running sums, so
//   that
//     a rollback is nothing but a smaller position.
#pragma once

#include <cstdint>
#include <vector>

#include "base/range.h"
#include "model/config.h"
#include "model/layer_roles.h"

namespace deepinfer {

inline constexpr int64_t kBlockPositions = 128;

struct CacheLayout {
  int64_t window_row_bytes = 0;  // head_dim + head_dim / 32: 528 for the released model
  int64_t global_row_bytes = 0;  // head_dim / 2 + head_dim / 16: 288
  int64_t index_row_bytes = 0;   // index_head_dim / 2 + index_head_dim / 32: 68
  int64_t ring_slots = 0;        // window + verify rows + 1, rounded up to 64
  int64_t tail_slots = 0;        // ratio_max + verify rows + 1, rounded up to a power of two
  int64_t window = 0;
  int64_t head_dim = 0;
  int num_layers = 0;  // with draft layers: each has a ring

  struct Source {
    int64_t ratio = 1;
    int64_t rows_per_block = 0;
    int64_t global_offset = 0, index_offset = 0;  // bytes into a block
  };
  std::vector<Source> sources;
  int64_t block_bytes = 0;

  int64_t ring_bytes() const { return ring_slots * window_row_bytes; }
  int64_t lane_bytes() const;  // rings of all layers and all tails
  double bytes_per_token() const { return static_cast<double>(block_bytes) / static_cast<double>(kBlockPositions); }
};

// Drafts of the longest verify run: the head's block, or as many as a grammar foretells, with or without a head.
int64_t draft_run_max(const ModelConfig& config);

CacheLayout make_cache_layout(const ModelConfig& config, const LayerRoles& roles, int64_t verify_rows_max);

}  // namespace deepinfer
