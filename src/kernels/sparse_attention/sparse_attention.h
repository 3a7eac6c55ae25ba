// SPDX-License-Identifier: MIT
// The attention core (model.md 3.8; draft form dspark-vision.md 1.4): each query attends its window and the selected
// compressed entries, every entry being key and value for all heads, with a sink in the denominator.
//
// Entry list of token t (decision 2): `window` slots for positions [window_end - window, window_end) in position order,
// a position below max(0, window_begin) missing; then `selected` in order (kNoEntry = missing); then the block rows of
// a draft. Missing entries take part in nothing. Online softmax over blocks of 64 entries of that list:
//   s = scale * (q . e), fp32, lane order over head_dim;  M' = max(M, s of the block), M starts at -1e30;
//   p = exp(s - M');  L = L exp(M - M') + sum of p (lane order);  acc = acc exp(M - M') + sum of bf16(p) e, entries
//   ascending;
// out = bf16( acc / (L + exp(sink - M)) ). A query without entries gives zeros.
//
// A window position is read from `fresh`, the packed rows of this step, when it is among the num_fresh(t) positions
// just below window_end(t): position window_end - i (i = 1..num_fresh) is fresh row t + 1 - i; older ones come from the
// ring of the lane. For ordinary rows window_end = position + 1 and num_fresh counts the rows of the same sequence up
// to t, so a chunk may be longer than the ring. For draft rows window_end = number of committed positions, num_fresh =
// 0 and block_rows > 0.
#pragma once

#include "kernels/cache_rows.h"
#include "kernels/op.h"
#include "kernels/quantize/quantize.h"
#include "tensor/bfloat16.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

inline constexpr int kAttentionBlock = 64;

struct SparseAttentionParams {
  View<const bf16, dim::tokens, dim::heads, dim::head_dim> q;  // rotated; last dimension contiguous
  F32Vector sink;                                              // [heads]
  float scale = 1;                                             // head_dim^-0.5
  int window = 0;
  View<const int32_t, dim::tokens> lane;
  View<const int32_t, dim::tokens> window_end;            // one past the newest window position
  View<const int32_t, dim::tokens> window_begin;          // data may be null = 0 (bounded replay cuts the window)
  View<const int32_t, dim::tokens> num_fresh;             // 0..window of them are used
  RowFormat window_format = RowFormat::kFp8Block32;       // of fresh and ring
  View<const uint8_t, dim::tokens, dim::kv_bytes> fresh;  // rows of this step
  ConstRing ring;                                         // read at positions in [window_begin, window_end - num_fresh)
  View<const int32_t, dim::tokens, dim::top_k> selected;  // data may be null (ratio 0)
  RowFormat global_format = RowFormat::kFp4Group16;
  ConstPaged global;                             // where selected has data
  int block_rows = 0;                            // draft: rows of the block, all seen by each of its queries
  View<const int32_t, dim::tokens> block_begin;  // draft: first of them in `fresh`
  View<bf16, dim::tokens, dim::heads, dim::head_dim> out;
};
Status check(const SparseAttentionParams& params);
Status check_values(const SparseAttentionParams& params);
Cost estimate(const SparseAttentionParams& params);
KernelRows<SparseAttentionParams> sparse_attention_rows();

}  // namespace deepinfer
