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
struct ByteHead {
  int8_t q[128];  // in the order of the kernels
  int32_t start;  // what a sum of products begins with
  float weight;   // times the head's unit
};
struct ByteIndexerKernels {
  // q [heads, head_dim] fp32 -> [heads].
  bool (*prepare)(const float* q, const float* weight, int64_t heads, int64_t head_dim, ByteHead* out);
  // At most kByteIndexerKeys keys. `next`: the keys that will be scored then, to be fetched meanwhile; may be null, and
  // nothing of them is read.
  bool (*score)(const ByteHead* heads, int64_t num_heads, const uint8_t* rows, int64_t row_stride, int64_t count,
                const uint8_t* next, bool round_steps, float* scores);
};
inline constexpr int64_t kByteIndexerKeys = 64;

const IndexerKernels& indexer_kernels_avx2();
const IndexerKernels& indexer_kernels_avx512();
const ByteIndexerKernels& byte_indexer_kernels_vnni();

}  // namespace deepinfer
