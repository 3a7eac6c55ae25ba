// SPDX-License-Identifier: MIT
// The pointwise functions of the vision tower with the reference's rounding points (model.md 9.10): bf16 in, fp32
// inside, bf16 after each function. A function of one bf16 number has 65,536 values, so each is a table made at first
// use.
#pragma once

#include "kernels/op.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

// out = bf16( bf16(silu(gate)) * up )
struct GatedSiluParams {
  View<const bf16, dim::rows, dim::inner> gate, up;  // row strides free
  View<bf16, dim::rows, dim::inner> out;
};
Status check(const GatedSiluParams& params);
Cost estimate(const GatedSiluParams& params);
KernelRows<GatedSiluParams> gated_silu_rows();

// x = bf16(gelu(x)), gelu(x) = x/2 (1 + erf(x / sqrt 2))
struct GeluParams {
  View<bf16, dim::rows, dim::inner> x;
};
Status check(const GeluParams& params);
Cost estimate(const GeluParams& params);
KernelRows<GeluParams> gelu_rows();

// x = bf16(x + y)
struct ResidualParams {
  View<bf16, dim::rows, dim::hidden> x;
  View<const bf16, dim::rows, dim::hidden> y;
};
Status check(const ResidualParams& params);
Cost estimate(const ResidualParams& params);
KernelRows<ResidualParams> residual_rows();

}  // namespace deepinfer
