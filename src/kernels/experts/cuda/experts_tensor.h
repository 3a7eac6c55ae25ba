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
  return num_experts == 1 ? std::min(4, num_segments(out, in)) : 1;
}

void experts_narrow(const ExecutionContext& context,
                    const ExpertsParams& params);  // best for up to 8 rows of an expert
void experts_wide(const ExecutionContext& context, const ExpertsParams& params);

}  // namespace deepinfer
