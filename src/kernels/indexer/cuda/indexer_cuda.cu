// SPDX-License-Identifier: MIT
// A thread scores one entry: its key stands in registers, the token's queries in shared memory, read by all at once.
#include <limits>

#include "kernels/indexer/indexer.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/quantize/cuda/small_formats.cuh"

namespace deepinfer {
namespace {

constexpr int kThreads = 128;

struct Place {
  bool is_scored, is_hidden;  // hidden: listed, but beyond what the token sees
  int64_t entry;
};

__device__ Place place_of(const IndexScoresParams& p, int64_t t, int64_t i) {
  const int64_t visible = p.num_visible(t);
  if (!p.candidates.data) return {i < visible, false, i};
  if (i >= p.scores.size[1]) return {false, false, 0};
  const int32_t block = p.candidates(t, i / p.candidate_block_size);
  const int64_t entry = int64_t{block} * p.candidate_block_size + i % p.candidate_block_size;
  if (block == kNoEntry) return {false, false, 0};
  return {entry < visible, entry >= visible, entry};
}

__device__ float key_value(const uint8_t* row, int64_t head_dim, int64_t i) {
  return e2m1_value(row[i / 2] >> (i % 2 * 4) & 15) * e8m0_to_float(row[head_dim / 2 + i / 32]);
}

__device__ float add_head(float sum, float dot, float weight, bool round) {
  if (round) dot = round_to_bf16(dot);
  const float term = (dot > 0 ? dot : 0.f) * weight;
  return sum + (round ? round_to_bf16(term) : term);
}

// kHeadDim 0: any multiple of 32, the key is read again for every head.
template <int kHeadDim>
__global__ void scores_kernel(IndexScoresParams p) {
  begin_overlapped();
  extern __shared__ float4 shared[];
  const int64_t t = blockIdx.y, heads = p.q.size[1], head_dim = p.q.size[2];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (!p.candidates.data && int64_t{blockIdx.x} * kThreads >= p.num_visible(t)) return;
  float* q = reinterpret_cast<float*>(shared);
  float* weight = q + heads * head_dim;
  for (int64_t d = threadIdx.x; d < heads * head_dim; d += kThreads) q[d] = to_float(p.q.row(t)[d]);
  for (int64_t h = threadIdx.x; h < heads; h += kThreads)
    weight[h] = round_to_bf16(to_float(p.weight(t, h)) * p.weight_scale);
  __syncthreads();
  const Place place = place_of(p, t, i);
  if (place.is_hidden) p.scores(t, i) = -std::numeric_limits<float>::infinity();
  if (!place.is_scored) return;
  const uint8_t* row = p.keys.row(p.lane(t), place.entry);
  const bool round = p.rounding == ScoreRounding::kReference;
  float key[kHeadDim > 0 ? kHeadDim : 1];
  if constexpr (kHeadDim > 0) {
#pragma unroll
    for (int d = 0; d < kHeadDim; ++d) key[d] = key_value(row, kHeadDim, d);
  }
  float sum = 0;
  for (int64_t h = 0; h < heads; ++h) {
    float lanes[kLaneThreads] = {};
    if constexpr (kHeadDim > 0) {
#pragma unroll
      for (int d = 0; d < kHeadDim; d += 4) {
        const float4 four = shared[(h * kHeadDim + d) / 4];
        lanes[d % 16] = __fmaf_rn(four.x, key[d], lanes[d % 16]);  // exact products: lanes/lanes.h
        lanes[d % 16 + 1] = __fmaf_rn(four.y, key[d + 1], lanes[d % 16 + 1]);
        lanes[d % 16 + 2] = __fmaf_rn(four.z, key[d + 2], lanes[d % 16 + 2]);
        lanes[d % 16 + 3] = __fmaf_rn(four.w, key[d + 3], lanes[d % 16 + 3]);
      }
    } else {
      for (int64_t d = 0; d < head_dim; d += 16)
#pragma unroll
        for (int l = 0; l < kLaneThreads; ++l)
          lanes[l] = __fmaf_rn(q[h * head_dim + d + l], key_value(row, head_dim, d + l), lanes[l]);
    }
    sum = add_head(sum, fold_lanes(lanes), weight[h], round);
  }
  p.scores(t, i) = round ? round_to_bf16(sum) : sum;
}

template <int kHeadDim>
void launch_scores(const ExecutionContext& context, const IndexScoresParams& p) {
  const int64_t shared = (p.q.size[1] * p.q.size[2] + p.q.size[1]) * static_cast<int64_t>(sizeof(float));
  const dim3 grid(num_blocks(p.scores.size[1], kThreads), num_blocks(p.q.size[0], 1));
  allow_shared_memory(scores_kernel<kHeadDim>, shared);
  launch_overlapped(context, {grid, kThreads, shared}, scores_kernel<kHeadDim>, p);
}

void index_scores_cuda(const ExecutionContext& context, const IndexScoresParams& p) {
  if (p.scores.num_elements() == 0 || p.q.num_elements() == 0) return;
  switch (p.q.size[2]) {
    case 32: launch_scores<32>(context, p); break;
    case 128: launch_scores<128>(context, p); break;
    default: launch_scores<0>(context, p); break;
  }
  context.device->launched("index_scores");
}

}  // namespace

extern const Launch<IndexScoresParams> kIndexScoresCuda = index_scores_cuda;

}  // namespace deepinfer
