// SPDX-License-Identifier: MIT
// One tile of queries of one head against all keys of its image, on packed fp32 operands. Plain data only, so that the
// file compiled for an instruction set includes nothing else.
#pragma once

#include <stdint.h>

#define DEEPINFER_VISION_TILE_QUERIES 24  // four register tiles of six: keys are read from memory once per 24 queries
#define DEEPINFER_VISION_PANEL 16         // keys of a K panel, channels of a V panel
#define DEEPINFER_VISION_KEY_BLOCK 512

struct VisionTile {
  const float* q;         // [24][head_dim], missing queries zero
  const float* k_panels;  // [ceil(num_keys/16)][head_dim][16], missing keys zero
  const float* v_panels;  // [ceil(head_dim/16)][num_keys][16], missing channels zero
  int64_t num_keys, head_dim;
  float scale;
  float* weights;  // scratch [24][512]
  float* out;      // [24][head_dim rounded up to 16], result
};

namespace deepinfer {
void vision_tile_avx2(const VisionTile* tile);
}
