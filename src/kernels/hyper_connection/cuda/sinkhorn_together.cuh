// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/lanes/exponential.h"

namespace deepinfer {

// sinkhorn.h with one thread per coefficient (thread i * n + j): each adds its row's or column's sum in ascending
// order, so all of a row or column have the same. The whole block calls; more than a warp's coefficients go over shared
// memory.
template <int kStreams>  // 0: any number
__device__ float sinkhorn_together(float mine, float* c, int streams, int iterations, float epsilon) {
  const int n = kStreams > 0 ? kStreams : streams;
  const int thread = static_cast<int>(threadIdx.x), i = thread / n, j = thread % n;
  const auto value_of = [&](int from) {
    if constexpr (kStreams > 0) return __shfl_sync(0xFFFFFFFFu, mine, from);
    else return c[from];
  };
  // begin, stride: where the n values of my row or column stand.
  const auto publish = [&] {
    if constexpr (kStreams == 0) {
      __syncthreads();
      if (thread < n * n) c[thread] = mine;
      __syncthreads();
    }
  };
  const auto share = [&](int begin, int stride, float in_sum, float added) {
    publish();
    float sum = 0;
#pragma unroll
    for (int k = 0; k < n; ++k) sum += value_of(min(begin + k * stride, n * n - 1));
    mine = mine / (sum + in_sum) + added;
  };
  publish();
  float highest = value_of(min(i * n, n * n - 1));
  for (int k = 1; k < n; ++k) {
    const float other = value_of(min(i * n + k, n * n - 1));
    highest = other > highest ? other : highest;
  }
  mine = exp_in_lanes(mine - highest);
  share(i * n, 1, 0.f, epsilon);
  for (int step = 0; step < iterations; ++step) {
    if (step > 0) share(i * n, 1, epsilon, 0.f);
    share(j, n, epsilon, 0.f);
  }
  return mine;
}

}  // namespace deepinfer
