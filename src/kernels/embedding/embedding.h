// SPDX-License-Identifier: MIT
// Token rows into every residual stream (model.md 3.1): out(t, s) = embed[token(t)], or image_rows[image_row(t)] where
// image_row(t) >= 0. A copy: no arithmetic. Token ids are checked by the caller.
#pragma once

#include "base/ids.h"
#include "kernels/op.h"
#include "tensor/bfloat16.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

struct EmbeddingParams {
  Bf16Matrix embed;  // [vocab, hidden]
  View<const TokenId, dim::tokens> token;
  View<const int32_t, dim::tokens> image_row;  // data may be null
  View<const bf16, dim::rows, dim::hidden> image_rows;
  View<bf16, dim::tokens, dim::streams, dim::hidden> out;
};
Status check(const EmbeddingParams& params);
Cost estimate(const EmbeddingParams& params);
KernelRows<EmbeddingParams> embedding_rows();

}  // namespace deepinfer
