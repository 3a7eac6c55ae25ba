// SPDX-License-Identifier: MIT
// Exact selection over index scores (model.md 3.6, 3.7). Ties go to the lowest index. Results are ascending and padded
// with kNoEntry. A row with no more visible entries than k takes them all and its scores are not read.
#pragma once

#include "kernels/op.h"

namespace deepinfer {

// The k = out.top_k best of the visible entries of each token. With candidates the row of scores is laid out as
// indexer.h says and only listed blocks take part; out holds entries, not places in the row.
struct TopKParams {
  View<const float, dim::tokens, dim::entries> scores;  // data may be null where every row takes all
  View<const int32_t, dim::tokens> num_visible;
  View<const int32_t, dim::tokens, dim::blocks> candidates;  // data may be null
  int candidate_block_size = 0;
  View<int32_t, dim::tokens, dim::top_k> out;
};
Status check(const TopKParams& params);
Status check_values(const TopKParams& params);
Cost estimate(const TopKParams& params);
KernelRows<TopKParams> top_k_rows();

// The out.blocks best blocks of block_size entries by their highest visible score; the block of the newest visible
// entry always counts as the highest. Blocks without a visible entry are never listed.
struct CandidateBlocksParams {
  View<const float, dim::tokens, dim::entries> scores;  // plain layout
  View<const int32_t, dim::tokens> num_visible;
  int block_size = 8;
  View<int32_t, dim::tokens, dim::blocks> out;
};
Status check(const CandidateBlocksParams& params);
Status check_values(const CandidateBlocksParams& params);
Cost estimate(const CandidateBlocksParams& params);
KernelRows<CandidateBlocksParams> candidate_blocks_rows();

}  // namespace deepinfer
