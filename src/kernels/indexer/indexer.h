// SPDX-License-Identifier: MIT
// Index scores over paged FP4 keys (model.md 3.6): score(t, j) = sum_h relu(q_th . k_j) * w_th, heads ascending, every
// step rounded to fp32 (decision 20). Keys are kFp4Group32 rows, rotated and rounded when stored; queries are rotated
// and rounded (RoundRows, kFp4Group32) before. w = bf16(weight * weight_scale), weight_scale = index_head_dim^-0.5 *
// index_heads^-0.5. ScoreRounding::kReference also rounds the dot products, the weighted terms and the sum to bf16, as
// the published code.
//
// Only the first num_visible(t) = floor((p+1)/r) entries of token t's sequence are scored; the rest of its row of
// `scores` is left as it is. With candidates (model.md 3.7), score i of token t belongs to entry candidates(t, i /
// block) * block + i mod block; entries beyond num_visible get -inf, scores behind the last listed block stay as they
// are.
#pragma once

#include "kernels/cache_rows.h"
#include "kernels/op.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

enum class ScoreRounding { kNone, kReference };

struct IndexScoresParams {
  View<const bf16, dim::tokens, dim::heads, dim::head_dim> q;  // last two dimensions contiguous
  View<const bf16, dim::tokens, dim::heads> weight;            // output of weights_proj
  float weight_scale = 1;
  ScoreRounding rounding = ScoreRounding::kNone;
  ConstPaged keys;
  View<const int32_t, dim::tokens> lane, num_visible;
  View<const int32_t, dim::tokens, dim::blocks> candidates;  // data may be null; ascending, kNoEntry pads
  int candidate_block_size = 0;
  View<float, dim::tokens, dim::entries> scores;  // [tokens, >= max num_visible, or blocks * block size]
};
Status check(const IndexScoresParams& params);
Status check_values(const IndexScoresParams& params);
Cost estimate(const IndexScoresParams& params);
KernelRows<IndexScoresParams> index_scores_rows();

}  // namespace deepinfer
