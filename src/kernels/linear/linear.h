// SPDX-License-Identifier: MIT
// y = x W^T for rows of bf16 and weights in the checkpoint's packed formats (model.md 4.1, 3.9, 3.12).
//
// Products are formed from dequantised values (exact in fp32: scales are powers of two) and summed in fp32 in the lane
// order of kernels/lanes/lanes.h, which depends on `in` alone. With round_activation each row of x is first rounded to
// e4m3 with an e8m0 scale per 32 columns (kFp8Block32): the GEMM8 and GEMM4 of the specification. Then, in this order:
// bias, fp32; one rounding to bf16 (`out`), or none (`out_f32`); with `add`, out_f32 += result. Codes and scales of
// weights are never NaN (the loader refuses such tensors).
#pragma once

#include <variant>

#include "kernels/op.h"
#include "tensor/bfloat16.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

using WeightMatrix = std::variant<Bf16Matrix, Fp8Matrix, Fp4Matrix>;
int64_t num_outputs(const WeightMatrix& weight);  // all groups together
int64_t num_inputs(const WeightMatrix& weight);   // of one group
double weight_bytes(const WeightMatrix& weight);
WeightLayout layout_of(const WeightMatrix& weight);  // bf16 stands in rows

struct LinearParams {
  View<const bf16, dim::rows, dim::in> x;  // [rows, num_groups * in], row stride free
  WeightMatrix weight;                     // [out, in]; group g owns rows [g*out/num_groups, (g+1)*out/num_groups)
  bool round_activation = false;           // true for every F8 and I8 weight except wo_a (decision 19)
  int num_groups = 1;  // block-diagonal weight: wo_a has o_groups; out/num_groups multiple of 32 for Fp8Matrix
  Bf16Vector bias;     // [out] or empty
  View<bf16, dim::rows, dim::out> out;  // exactly one of out and out_f32 has data
  View<float, dim::rows, dim::out> out_f32;
  bool add = false;  // out_f32 only: the Markov term is added to the base logits
};
Status check(const LinearParams& params);
Cost estimate(const LinearParams& params);
KernelRows<LinearParams> linear_rows();

}  // namespace deepinfer
