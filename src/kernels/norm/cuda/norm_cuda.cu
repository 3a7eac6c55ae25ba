// SPDX-License-Identifier: MIT
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/norm/norm.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;

// A block norms one row; its first half warp sums the squares in lane order out of shared memory.
__global__ void norm_rows_kernel(NormParams p) {
  extern __shared__ float values[];
  __shared__ float inverse;
  const int64_t r = blockIdx.x, size = p.x.size[1];
  for (int64_t i = threadIdx.x; i < size; i += kThreads) values[i] = to_float(p.x(r, i));
  __syncthreads();
  if (threadIdx.x < kLaneThreads) {
    const float squares = sum_in_lanes(size, [&](int64_t i) { return values[i] * values[i]; });
    if (threadIdx.x == 0) inverse = 1.f / sqrtf(squares / static_cast<float>(size) + p.epsilon);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < size; i += kThreads) p.out(r, i) = to_bf16(p.weight[i] * (values[i] * inverse));
}

void norm_cuda(const ExecutionContext& context, const NormParams& p) {
  if (p.x.size[0] == 0) return;
  const int64_t shared = p.x.size[1] * static_cast<int64_t>(sizeof(float));
  allow_shared_memory(norm_rows_kernel, shared);
  norm_rows_kernel<<<num_blocks(p.x.size[0], 1), kThreads, shared, stream_of(context)>>>(p);
  context.device->launched("norm");
}

}  // namespace

extern const Launch<NormParams> kNormCuda = norm_cuda;

}  // namespace deepinfer
