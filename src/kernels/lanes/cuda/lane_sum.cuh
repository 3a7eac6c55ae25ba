// SPDX-License-Identifier: MIT
// Sums in the order of lanes/lanes.h on sixteen neighbouring threads: thread i of a half warp is lane i.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace deepinfer {

inline constexpr int kLaneThreads = 16;

// Folds sixteen lanes 16 -> 8 -> 4 -> 2 -> 1; all sixteen threads call, each gets the total.
__device__ inline float fold_lanes(float lane) {
  const unsigned half_warp = 0xFFFFu << (threadIdx.x & 16u);
#pragma unroll
  for (int half = kLaneThreads / 2; half > 0; half /= 2) lane += __shfl_down_sync(half_warp, lane, half, kLaneThreads);
  return __shfl_sync(half_warp, lane, 0, kLaneThreads);
}

// Sum of term(k) for k < size.
template <typename Term>
__device__ float sum_in_lanes(int64_t size, const Term& term) {
  float lane = 0;
#pragma unroll 8
  for (int64_t k = threadIdx.x % kLaneThreads; k < size; k += kLaneThreads) lane += term(k);
  return fold_lanes(lane);
}

// Of one thread that holds all sixteen lanes.
__device__ inline float fold_lanes(float (&lane)[kLaneThreads]) {
#pragma unroll
  for (int half = kLaneThreads / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

}  // namespace deepinfer
