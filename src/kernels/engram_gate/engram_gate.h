// SPDX-License-Identifier: MIT
// Engram on the device side (model.md 3.10): looked-up rows to bf16, and the gated injection into the residual streams.
#pragma once

#include "kernels/op.h"
#include "tensor/bfloat16.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

// out(t) = the rows row(t, c) of the table, c ascending, concatenated: e4m3 * 2^(scale - 127) per 32 columns, rounded
// to bf16. The table may be the mapped checkpoint or a staging buffer of prefetched rows. Row numbers are checked by
// the caller.
struct EngramRowsParams {
  Fp8Rows table;
  View<const int64_t, dim::tokens, dim::columns> row;
  View<bf16, dim::tokens, dim::hidden> out;  // [tokens, columns * table.columns]
};
Status check(const EngramRowsParams& params);
Cost estimate(const EngramRowsParams& params);
KernelRows<EngramRowsParams> engram_rows_rows();

// kv = [keys per stream, value] of each token, output of engram.wkv. In fp32, per stream i: g = q_weight_i *
// k_weight_i; d = (sum X_i g key_i, lane order) * (rsqrt(mean X_i^2 + e) * rsqrt(mean key_i^2 + e)) * hidden^-0.5; gate
// = sigmoid(copysign(sqrt(max(|d|, 1e-6)), d)); X_i = bf16( X_i + gate * value ). Image rows keep their streams.
struct EngramGateParams {
  View<const bf16, dim::tokens, dim::columns> kv;  // [tokens, (streams+1)*hidden]
  Bf16Matrix q_weight, k_weight;                   // [streams, hidden]
  View<const uint8_t, dim::tokens> is_image;       // data may be null
  float epsilon = 1e-20f;
  View<bf16, dim::tokens, dim::streams, dim::hidden> x;  // in place; last two dimensions contiguous
};
Status check(const EngramGateParams& params);
Cost estimate(const EngramGateParams& params);
KernelRows<EngramGateParams> engram_gate_rows();

}  // namespace deepinfer
