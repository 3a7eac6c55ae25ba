// SPDX-License-Identifier: MIT
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/linear/cuda/overlapped_launch.cuh"
#include "kernels/norm/norm.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 320;

// A thread's eight neighbouring values of a row: one wide load or store where `is_wide`.
struct Eight {
  alignas(16) bf16 values[8];
};
__device__ Eight load_eight(const bf16* from, int64_t left, bool is_wide) {
  Eight eight{};
  if (is_wide) *reinterpret_cast<uint4*>(eight.values) = *reinterpret_cast<const uint4*>(from);
  else
    for (int i = 0; i < 8; ++i)
      if (i < left) eight.values[i] = from[i];
  return eight;
}

// A block norms one row; its first half warp sums the squares in lane order out of shared memory: a chain of size / 16
// additions, which is what this takes.
__global__ void __launch_bounds__(kThreads) norm_rows_kernel(NormParams p, bool is_wide) {
  extern __shared__ __align__(16) float squares[];
  __shared__ float inverse;
  let_kernels_behind_begin();  // a product's weights
  const int64_t r = blockIdx.x, size = p.x.size[1], step = 8 * kThreads;
  const bf16* x = p.x.row(r);
  const Eight first = load_eight(x + 8 * threadIdx.x, size - 8 * threadIdx.x, is_wide && 8 * threadIdx.x < size);
  for (int64_t begin = 8 * threadIdx.x; begin < size; begin += step) {
    const Eight eight = begin < step ? first : load_eight(x + begin, size - begin, is_wide);
    float terms[8];
    for (int i = 0; i < 8; ++i) terms[i] = to_float(eight.values[i]) * to_float(eight.values[i]);
    if (is_wide) {  // neighbouring threads' values four by four: one by one they would meet in the same banks
      auto* to = reinterpret_cast<float4*>(squares + begin);
      to[0] = {terms[0], terms[1], terms[2], terms[3]}, to[1] = {terms[4], terms[5], terms[6], terms[7]};
      continue;
    }
    for (int i = 0; i < 8; ++i)
      if (begin + i < size) squares[begin + i] = terms[i];
  }
  __syncthreads();
  if (threadIdx.x < kLaneThreads) {
    float lane = 0;
#pragma unroll 32
    for (int64_t i = threadIdx.x; i < size; i += kLaneThreads) lane += squares[i];
    lane = fold_lanes(lane);
    if (threadIdx.x == 0) inverse = 1.f / sqrtf(lane / static_cast<float>(size) + p.epsilon);
  }
  __syncthreads();
  for (int64_t begin = 8 * threadIdx.x; begin < size; begin += step) {
    Eight eight = begin < step ? first : load_eight(x + begin, size - begin, is_wide);
    const Eight weight = load_eight(p.weight.data + begin, size - begin, is_wide);
    for (int i = 0; i < 8; ++i)
      eight.values[i] = to_bf16(to_float(weight.values[i]) * (to_float(eight.values[i]) * inverse));
    if (is_wide) *reinterpret_cast<uint4*>(&p.out(r, begin)) = *reinterpret_cast<const uint4*>(eight.values);
    else
      for (int i = 0; i < 8; ++i)
        if (begin + i < size) p.out(r, begin + i) = eight.values[i];
  }
}

void norm_cuda(const ExecutionContext& context, const NormParams& p) {
  if (p.x.size[0] == 0) return;
  const int64_t shared = p.x.size[1] * static_cast<int64_t>(sizeof(float));
  const auto address = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
  const bool is_wide = p.x.size[1] % 8 == 0 && p.x.stride[0] % 8 == 0 && p.out.stride[0] % 8 == 0 &&
                       (address(p.x.data) | address(p.out.data) | address(p.weight.data)) % 16 == 0;
  allow_shared_memory(norm_rows_kernel, shared);
  norm_rows_kernel<<<num_blocks(p.x.size[0], 1), kThreads, shared, stream_of(context)>>>(p, is_wide);
  context.device->launched("norm");
}

}  // namespace

extern const Launch<NormParams> kNormCuda = norm_cuda;

}  // namespace deepinfer
