// SPDX-License-Identifier: MIT
// Rotary embedding over two axes, as the vision tower has it (dspark-vision.md 3.4): lane d < head_dim/2 pairs with
// lane d + head_dim/2; fp32 inside, one rounding to bf16. The caller gives cos and sin per token and pair: the first
// half of the pairs by the patch's row, the second by its column (vision_rope_angles).
#pragma once

#include "kernels/op.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

struct VisionRopeParams {
  View<bf16, dim::tokens, dim::heads, dim::head_dim> x;      // in place; token stride free
  View<const float, dim::tokens, dim::rope_pairs> cos, sin;  // head_dim / 2 pairs
};
Status check(const VisionRopeParams& params);
Cost estimate(const VisionRopeParams& params);
KernelRows<VisionRopeParams> vision_rope_rows();

// Angles of a row-major grid of patches: pair j < pairs/2 turns by row * f_j, pair pairs/2 + j by column * f_j, with
// f_j = theta^(-2j/pairs), in the reference's fp32 arithmetic. cos and sin are [rows * columns, pairs].
void vision_rope_angles(int64_t rows, int64_t columns, double theta, View<float, dim::tokens, dim::rope_pairs> cos,
                        View<float, dim::tokens, dim::rope_pairs> sin);

}  // namespace deepinfer
