// SPDX-License-Identifier: MIT
#include <algorithm>

#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/eight.cuh"
#include "kernels/lanes/cuda/lane_places.cuh"
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/norm/norm.h"

namespace deepinfer {
namespace {

// A block norms one row. kInLanes: the squares are added in lane order out of shared memory (lane_places.cuh), a chain of
// size / 16 additions; else each thread adds its own first. Values and weights of kHeld * 8 * blockDim columns stay in
// registers.
constexpr int kHeld = 2, kWideThreads = 320;
template <bool kInLanes>
__global__ void __launch_bounds__(kWideThreads, 4) norm_wide_kernel(const __grid_constant__ NormParams p) {
  extern __shared__ __align__(16) float squares[];
  __shared__ BlockSum<kWideThreads> sum;
  const int size = static_cast<int>(p.x.size[1]), step = 8 * static_cast<int>(blockDim.x),
            mine = 8 * static_cast<int>(threadIdx.x);
  const bf16* x = p.x.row(blockIdx.x);
  Eight held[kHeld], weight[kHeld];
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
    if (mine + n * step < size) weight[n] = load_eight(p.weight.data + mine + n * step);
  begin_overlapped();
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
    if (mine + n * step < size) held[n] = load_eight(x + mine + n * step);
  float own = 0;
  const auto add_squares = [&](const Eight& eight, int begin) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float value = to_float(eight.values[i]);
      if constexpr (kInLanes) squares[lane_place(begin + i)] = value * value;
      else own = __fmaf_rn(value, value, own);
    }
  };
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
    if (mine + n * step < size) add_squares(held[n], mine + n * step);
  for (int begin = mine + kHeld * step; begin < size; begin += step) add_squares(load_eight(x + begin), begin);
  const float all = kInLanes ? sum.of_places(squares, size) : sum.of_threads(own);
  const float inverse = 1.f / sqrtf(all / static_cast<float>(size) + p.epsilon);
  bf16* out = p.out.row(blockIdx.x);
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
    if (mine + n * step < size) store_eight(out + mine + n * step, normed(held[n], weight[n], inverse));
  for (int begin = mine + kHeld * step; begin < size; begin += step)
    store_eight(out + begin, normed(load_eight(x + begin), load_eight(p.weight.data + begin), inverse));
}

// Any row.
constexpr int kThreads = 320;
__global__ void __launch_bounds__(kThreads) norm_rows_kernel(NormParams p) {
  extern __shared__ float squares[];
  __shared__ float inverse;
  begin_overlapped();
  const int64_t r = blockIdx.x, size = p.x.size[1];
  for (int64_t i = threadIdx.x; i < size; i += kThreads) squares[i] = to_float(p.x(r, i)) * to_float(p.x(r, i));
  __syncthreads();
  if (threadIdx.x < kLaneThreads) {
    const float sum = sum_in_lanes(size, [&](int64_t i) { return squares[i]; });
    if (threadIdx.x == 0) inverse = 1.f / sqrtf(sum / static_cast<float>(size) + p.epsilon);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < size; i += kThreads)
    p.out(r, i) = to_bf16(p.weight[i] * (to_float(p.x(r, i)) * inverse));
}

template <bool kInLanes>
void norm(const ExecutionContext& context, const NormParams& p) {
  if (p.x.size[0] == 0) return;
  const int64_t shared = p.x.size[1] * static_cast<int64_t>(sizeof(float));
  const auto address = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
  const bool is_wide = p.x.size[1] % kPlaceColumns == 0 && p.x.stride[0] % 8 == 0 && p.out.stride[0] % 8 == 0 &&
                       (address(p.x.data) | address(p.out.data) | address(p.weight.data)) % 16 == 0;
  const dim3 grid(num_blocks(p.x.size[0], 1));
  const unsigned threads = std::min(num_blocks(p.x.size[1], 8 * 32) * 32, unsigned{kWideThreads});
  if (is_wide) launch_overlapped(context, {grid, threads, kInLanes ? shared : 0}, norm_wide_kernel<kInLanes>, p);
  else launch_overlapped(context, {grid, kThreads, shared}, norm_rows_kernel, p);
  context.device->launched("norm");
}

}  // namespace

extern const Launch<NormParams> kNormCuda = norm<true>;
extern const Launch<NormParams> kNormFastCuda = norm<false>;

}  // namespace deepinfer
