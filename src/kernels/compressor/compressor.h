// SPDX-License-Identifier: MIT
// Pooling of r > 1 tokens into one latent (model.md 3.5): per channel, weights = softmax over the group's tokens of the
// gate projection; z = sum of weight * kv projection; rounded to bf16 once (the norm op follows). Ratio 1 needs no
// pooling: its latent is norm(bf16 linear). Group j of ratio r covers positions [j*r, (j+1)*r).
//
// kv and gate projections are fp32 (linear with out_f32). Tokens of a group that came in an earlier step are read from
// the lane's tail: a ring of `slots` fp32 rows [kv, gate], position p in slot p mod slots. Rejected draft rows are
// simply overwritten when their positions come again, so slots >= r - 1 + the largest verify width.
#pragma once

#include "kernels/op.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

inline constexpr int kCompressRatioMax = 16;

struct CompressorPoolParams {
  int ratio = 2;
  View<const float, dim::tokens, dim::head_dim> kv, gate;        // the rows of this step
  View<const float, dim::lanes, dim::slots, dim::columns> tail;  // [lanes, slots, 2*head_dim]
  // One entry per group that is completed in this step.
  View<const int32_t, dim::groups> lane;
  View<const int32_t, dim::groups> last_row;       // row in kv of the group's last token
  View<const int32_t, dim::groups> last_position;  // j*r + r-1
  View<const int32_t, dim::groups> num_rows;       // 1..r: its tokens that are rows of this step, ending at last_row
  View<bf16, dim::groups, dim::head_dim> out;
};
Status check(const CompressorPoolParams& params);
Cost estimate(const CompressorPoolParams& params);
KernelRows<CompressorPoolParams> compressor_pool_rows();

// Copies rows of this step into the tails, after pooling. A negative position skips the row; of several rows of a lane
// that share a slot only the newest may be given.
struct CompressorTailParams {
  View<const float, dim::tokens, dim::head_dim> kv, gate;
  View<const int32_t, dim::tokens> lane, position;
  View<float, dim::lanes, dim::slots, dim::columns> tail;
};
Status check(const CompressorTailParams& params);
Cost estimate(const CompressorTailParams& params);
KernelRows<CompressorTailParams> compressor_tail_rows();

}  // namespace deepinfer
