// SPDX-License-Identifier: MIT
// One tile of queries of one head against all keys of its image, on packed fp32 operands. Plain data only, so that the
// files compiled for an instruction set include nothing else.
#pragma once

#include <cstdint>

namespace deepinfer {

inline constexpr int kVisionTileQueries = 24;  // keys are read from memory once per tile
inline constexpr int kVisionPanel = 16;        // keys of a K panel, channels of a V panel
inline constexpr int kVisionTileKeys = 512;    // = kVisionKeyBlock

struct VisionTile {
  const float* q;         // [24][head_dim], missing queries zero
  const float* k_panels;  // [ceil(num_keys/16)][head_dim][16], missing keys zero
  const float* v_panels;  // [ceil(head_dim/16)][num_keys][16], missing channels zero
  int64_t num_keys, head_dim;
  float scale;
  float* weights;  // scratch [24][512]
  float* out;      // [24][head_dim rounded up to 16], result
};

void vision_tile_avx2(const VisionTile& tile);
void vision_tile_avx512(const VisionTile& tile);

}  // namespace deepinfer
