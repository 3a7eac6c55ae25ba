// SPDX-License-Identifier: MIT
// RMSNorm (model.md 3.2): out = bf16( w * (x * rsqrt(mean(x^2) + epsilon)) ), all inside in fp32, one rounding at the
// end. The sum of squares follows the lane order; rsqrt is 1 / sqrt. `out` may be `x`.
#pragma once

#include "kernels/op.h"
#include "tensor/bfloat16.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

struct NormParams {
  View<const bf16, dim::rows, dim::hidden> x;
  Bf16Vector weight;  // [hidden]
  float epsilon = 1e-20f;
  View<bf16, dim::rows, dim::hidden> out;
};
Status check(const NormParams& params);
Cost estimate(const NormParams& params);
KernelRows<NormParams> norm_rows();

}  // namespace deepinfer
