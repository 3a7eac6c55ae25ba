// SPDX-License-Identifier: MIT
// Terms of a sum in lane order (lanes/lanes.h) in shared memory, laid out for both sides: 64 terms stand lane by lane, a
// lane's four together, so that the thread that adds a lane reads four at a time; lanes are turned by the number of the
// 64, so that threads that write eight neighbouring terms each write to different banks.
#pragma once

#include "kernels/lanes/cuda/lane_sum.cuh"

namespace deepinfer {

inline constexpr int kPlaceColumns = 4 * kLaneThreads;  // sizes are multiples

__device__ inline int lane_place(int lane, int block) {
  return block * kPlaceColumns + ((lane & 8) | ((lane + lane / 8 + 2 * block) & 7)) * 4;
}
// Of term k.
__device__ inline int lane_place(int k) {
  return lane_place(k % kLaneThreads, k / kPlaceColumns) + k % kPlaceColumns / kLaneThreads;
}

// A half warp calls; each of its threads gets the sum. The next terms are on their way while some are added.
__device__ inline float sum_of_places(const float* terms, int size) {
  constexpr int kAtOnce = 4;  // the turns of lanes repeat
  const int blocks = size / kPlaceColumns, thread = static_cast<int>(threadIdx.x) % kLaneThreads;
  float lane = 0;
  float4 next[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i)
    if (i < blocks) next[i] = *reinterpret_cast<const float4*>(terms + lane_place(thread, i));
#pragma unroll 1
  for (int block = 0; block < blocks; block += kAtOnce) {
    terms += kAtOnce * kPlaceColumns;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float4 four = next[i];
      if (block + kAtOnce + i < blocks) next[i] = *reinterpret_cast<const float4*>(terms + lane_place(thread, i));
      if (block + i < blocks) lane = lane + four.x + four.y + four.z + four.w;  // in this order
    }
  }
  return fold_lanes(lane);
}

// A block's sum, in shared memory; the whole block calls, all threads get it.
template <int kMostThreads>
struct BlockSum {
  float parts[kMostThreads / 32];

  // In lane order, once all threads have put their terms.
  __device__ float of_places(const float* terms, int size) {
    __syncthreads();
    if (threadIdx.x < kLaneThreads) {
      const float sum = sum_of_places(terms, size);
      if (threadIdx.x == 0) parts[0] = sum;
    }
    __syncthreads();
    return parts[0];
  }
  // Of a term of each thread, in an order of its own: over warps, then warp by warp.
  __device__ float of_threads(float own) {
#pragma unroll
    for (int half = 16; half > 0; half /= 2) own += __shfl_xor_sync(0xFFFFFFFFu, own, half);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    float all = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) all += parts[warp];
    return all;
  }
};

}  // namespace deepinfer
