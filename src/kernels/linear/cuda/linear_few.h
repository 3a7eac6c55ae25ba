// SPDX-License-Identifier: MIT
// The route of linear_tensor.h for bf16 matrices of few outputs and more than kNarrowRows rows.
#pragma once

#include "kernels/linear/linear.h"

namespace deepinfer {

// Of those that fit warpgroups: whether outputs are few and rows can be read 16 bytes at a time.
bool fits_few(const LinearParams& params);
void linear_few(const ExecutionContext& context, const LinearParams& params);

}  // namespace deepinfer
