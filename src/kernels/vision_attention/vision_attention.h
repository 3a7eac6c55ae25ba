// SPDX-License-Identifier: MIT
// Full bidirectional attention inside each image of a batch (dspark-vision.md 3.4), weights kept in fp32. Keys go in
// blocks of kVisionKeyBlock, in order, with a running maximum m and sum l per query:
//   s_j = scale * (q . k_j), the dot product summed over ascending channels;  m' = max(m, s);  c = exp(m - m')
//   p_j = exp(s_j - m');  l = c l + sum of the block's p (lane order);  o = c o, then o = fma(p_j, v_j, o) for
//   ascending j
// and at the end out = bf16(o / l). All fp32; products of q and k are exact, so there fused and separate operations
// agree. Rounding p to bf16 first, as some libraries do, moves the tower's output by 0.6 % rms on the golden images;
// this form reproduces the small one but for single ulps and the larger ones to 0.2 %. A query's result depends on its
// own image alone. Rows that are not exact sum in another order; weights keep what bf16 would round off, too.
#pragma once

#include <span>

#include "base/range.h"
#include "kernels/op.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

inline constexpr int64_t kVisionKeyBlock = 512;

struct VisionAttentionParams {
  View<const bf16, dim::tokens, dim::heads, dim::head_dim> q, k, v;  // token strides free
  std::span<const Range> images;  // token ranges, one per image, ascending, not overlapping
  float scale = 1;
  View<bf16, dim::tokens, dim::heads, dim::head_dim> out;
};
Status check(const VisionAttentionParams& params);
Cost estimate(const VisionAttentionParams& params);
KernelRows<VisionAttentionParams> vision_attention_rows();

}  // namespace deepinfer
