// SPDX-License-Identifier: MIT
// Single-pass mHC (model.md 3.2): the mixing of the residual streams around a sublayer. Streams are bf16 between
// sublayers, everything inside is fp32, one rounding at the end. Number of streams S = 1..8. Mixing one sublayer:
// (pre', post, comb) = mix(X); u = collapse(pre of the previous sublayer, X); y = sublayer(norm(u)); X = update(post,
// comb, y, X); pre = pre'.
#pragma once

#include "kernels/norm/norm.h"
#include "kernels/op.h"
#include "tensor/bfloat16.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

inline constexpr int kStreamsMax = 8;

// z = (fn flatten(X)) * 1/sqrt(mean(X^2) + norm_epsilon), products rounded to fp32, sums in lane order over S*hidden;
// pre = sigmoid(z*scale0 + base) + epsilon; post = 2 sigmoid(z*scale1 + base); comb = Sinkhorn(z*scale2 + base):
// softmax over destinations + epsilon, a column step, then iterations - 1 times a row and a column step, each dividing
// by (sum + epsilon).
struct StreamMixParams {
  View<const bf16, dim::tokens, dim::streams, dim::hidden> x;  // [tokens, S, hidden], last two dimensions contiguous
  F32Matrix fn;                                                // [(2+S)*S, S*hidden]: pre, post, comb (source-major)
  F32Vector base;                                              // [(2+S)*S]
  F32Vector scale;                                             // [3]
  float norm_epsilon = 1e-20f, epsilon = 1e-6f;
  int iterations = 20;
  View<float, dim::tokens, dim::streams> pre, post;
  View<float, dim::tokens, dim::streams, dim::streams> comb;  // [tokens, source, destination]
};
Status check(const StreamMixParams& params);
Cost estimate(const StreamMixParams& params);
KernelRows<StreamMixParams> stream_mix_rows();

// u = bf16( sum_i pre_i X_i ), i ascending. With pre = 1/S everywhere this is the mean over streams (draft features).
struct StreamCollapseParams {
  View<const bf16, dim::tokens, dim::streams, dim::hidden> x;
  View<const float, dim::tokens, dim::streams> pre;
  View<bf16, dim::tokens, dim::hidden> out;
};
Status check(const StreamCollapseParams& params);
Cost estimate(const StreamCollapseParams& params);
KernelRows<StreamCollapseParams> stream_collapse_rows();

// X'_j = bf16( post_j y + sum_i comb_ij X_i ): the sum over sources ascending, then post_j y added. `out` may be `x`.
struct StreamUpdateParams {
  View<const bf16, dim::tokens, dim::streams, dim::hidden> x;
  View<const bf16, dim::tokens, dim::hidden> y;
  View<const float, dim::tokens, dim::streams> post;
  View<const float, dim::tokens, dim::streams, dim::streams> comb;
  View<bf16, dim::tokens, dim::streams, dim::hidden> out;
};
Status check(const StreamUpdateParams& params);
Cost estimate(const StreamUpdateParams& params);
KernelRows<StreamUpdateParams> stream_update_rows();

// What stands between two sublayers, in one: X' = update(post, comb, y, X), u = collapse(pre, X'), input = norm(u) as
// norm.h has it. The bits are those of the three ops one after another.
struct StreamAdvanceParams {
  StreamUpdateParams update;
  View<const float, dim::tokens, dim::streams> pre;  // of the sublayer behind
  Bf16Vector norm_weight;                            // [hidden]
  float norm_epsilon = 1e-20f;
  View<bf16, dim::tokens, dim::hidden> collapsed;  // working space: what it holds afterwards is not defined
  View<bf16, dim::tokens, dim::hidden> input;      // apart from update.y
};
inline StreamCollapseParams collapse_of(const StreamAdvanceParams& p) {
  return {.x = p.update.out, .pre = p.pre, .out = p.collapsed};
}
inline NormParams norm_of(const StreamAdvanceParams& p) {
  return {.x = {p.collapsed.data, p.collapsed.size, p.collapsed.stride},
          .weight = p.norm_weight,
          .epsilon = p.norm_epsilon,
          .out = {p.input.data, p.input.size, p.input.stride}};
}
Status check(const StreamAdvanceParams& params);
Cost estimate(const StreamAdvanceParams& params);
KernelRows<StreamAdvanceParams> stream_advance_rows();

}  // namespace deepinfer
