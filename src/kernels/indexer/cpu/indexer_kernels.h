// SPDX-License-Identifier: MIT
// Inner loop of the index scores, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

struct IndexerKernels {
  // scores[j] of `count` packed keys (kFp4Group32) row_stride bytes apart; q is [heads, head_dim] fp32; `keys` has room
  // for 4 * head_dim floats; with round_steps every step is rounded to bf16.
  void (*score)(const float* q, const float* weight, int64_t heads, int64_t head_dim, const uint8_t* rows,
                int64_t row_stride, int64_t count, bool round_steps, float* keys, float* scores);
};

const IndexerKernels& indexer_kernels_avx2();
const IndexerKernels& indexer_kernels_avx512();

}  // namespace deepinfer
