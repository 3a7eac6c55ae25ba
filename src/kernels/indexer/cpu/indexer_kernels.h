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

// The same in whole numbers, for heads of 128: products of e2m1 codes are integers, so that a dot product is exact in
// any order, once the scales of a head's or key's groups are brought to one unit by shifts. A score then is the
// reference's, bit for bit. False: some group is too far from the others (or the size is another): the lanes must do
// it.
struct ByteIndexerKernels {
  // q [heads, head_dim] fp32 -> [heads, 128] bytes and each weight times its head's unit.
  bool (*prepare)(const float* q, const float* weight, int64_t heads, int64_t head_dim, uint8_t* bytes,
                  float* scaled_weight);
  // At most kByteIndexerKeys keys.
  bool (*score)(const uint8_t* q, const float* scaled_weight, int64_t heads, const uint8_t* rows, int64_t row_stride,
                int64_t count, bool round_steps, float* scores);
};
inline constexpr int64_t kByteIndexerKeys = 64;

const IndexerKernels& indexer_kernels_avx2();
const IndexerKernels& indexer_kernels_avx512();
const ByteIndexerKernels& byte_indexer_kernels_vnni();

}  // namespace deepinfer
