// SPDX-License-Identifier: MIT
// Inner loops of the attention core, one set per instruction level. Plain pointers only. A block holds up to 64 entries
// as fp32 rows of head_dim (a multiple of 32); scores and probabilities are [heads, 64].
#pragma once

#include <cstdint>

namespace deepinfer {

inline constexpr int kHeadsMost = 16;

struct AttentionKernels {
  void (*unpack_fp8)(const uint8_t* row, int64_t head_dim, float* out);
  void (*unpack_fp4)(const uint8_t* row, int64_t head_dim, float* out);  // groups of 16
  void (*unpack_bf16)(const uint8_t* row, int64_t head_dim, float* out);
  void (*dots)(const float* q, int64_t heads, int64_t head_dim, const float* entries, int64_t count, float* scores);
  // Scores (scaled; -inf = missing) become probabilities rounded to bf16; updates the running maxima and sums and gives
  // the decays, of one head each: arrays of kHeadsMost.
  void (*softmax)(float* scores, int64_t heads, float scale, float* highest, float* sum, float* decay);
  // acc[h] = acc[h] * decay[h] + sum over entries ascending of probability * entry.
  void (*accumulate)(const float* probabilities, const float* decay, const float* entries, int64_t count, int64_t heads,
                     int64_t head_dim, float* acc);
  void (*divide)(const float* acc, float denominator, int64_t head_dim, uint16_t* out);
};

// The same over bf16 pairs (lanes_bf16.h): entries are rows of pairs, missing ones and those behind the last are zeros.
// False: something is not plain, and the block must be done over fp32 lanes.
struct PairAttentionKernels {
  bool (*load_queries)(const uint16_t* q, int64_t head_dim, uint16_t* out);
  bool (*unpack_fp8)(const uint8_t* row, int64_t head_dim, uint16_t* out);
  void (*unpack_fp4)(const uint8_t* row, int64_t head_dim, uint16_t* out);
  void (*dots)(const uint16_t* q, int64_t heads, int64_t head_dim, const uint16_t* entries, float* scores);
  // [32, head_dim] pairs of neighbouring entries, from 64 entries; and the 32 pairs of one head's probabilities.
  void (*pair_entries)(const uint16_t* entries, int64_t head_dim, uint32_t* out);
  bool (*pair_probabilities)(const float* probabilities, float decay, uint32_t* out);
  // False: done, but some sum is so small now that the next block must go over fp32 lanes.
  bool (*accumulate)(const uint32_t* probabilities, const float* decay, const uint32_t* entries, int64_t heads,
                     int64_t head_dim, float* acc);
};

const PairAttentionKernels& pair_attention_kernels_bf16();
const AttentionKernels& sparse_attention_kernels_avx2();
const AttentionKernels& sparse_attention_kernels_avx512();

}  // namespace deepinfer
