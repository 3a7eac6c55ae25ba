// SPDX-License-Identifier: MIT
// The routes of experts on tensor cores. Which one is taken decides speed alone: where the experts fit, the routes for
// few and for many rows give the same bits.
#pragma once

#include <algorithm>

#include "kernels/experts/experts.h"
#include "kernels/linear/cuda/linear_tensor.h"

namespace deepinfer {

// Whether warpgroups take them: whole units of columns, codes and scales that can be read 16 and 8 bytes at a time.
bool fit_warpgroups(const ExpertsParams& params);

// Segments of the columns (linear_tensor.h): an expert of its own has few outputs, those of a layer together many.
inline int num_expert_segments(size_t num_experts, int64_t out, int64_t in) {
  return num_experts == 1 ? std::min(4, num_segments(out, in, true)) : 1;
}

// Rows that most experts have at most, if rows are spread evenly; what decides about the tiles of experts_stream.
inline int64_t stream_tile_rows(const ExpertsParams& p) {
  const int64_t experts = static_cast<int64_t>(p.experts.size()), rows = (p.out.size[0] + experts - 1) / experts;
  return experts == 1 ? rows : rows + rows / 16;
}
// Best for up to kStreamExpertRows of these; an expert of its own, which has fewer outputs, for up to kStreamRows.
inline constexpr int64_t kStreamExpertRows = 96;
void experts_stream(const ExecutionContext& context, const ExpertsParams& params);
void experts_wide(const ExecutionContext& context, const ExpertsParams& params);

}  // namespace deepinfer
