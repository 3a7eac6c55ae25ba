// SPDX-License-Identifier: MIT
#include "kernels/engram_gate/engram_gate.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/eight.cuh"
#include "kernels/lanes/cuda/lane_places.cuh"
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/exponential.h"
#include "tensor/float8.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;

__global__ void rows_kernel(EngramRowsParams p) {
  begin_overlapped();
  const int64_t t = blockIdx.x, c = blockIdx.y, columns = p.table.columns, row = p.row(t, c);
  const uint8_t* codes = p.table.row(row);
  const uint8_t* scales = p.table.row_scales(row);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads)
    p.out(t, c * columns + i) = to_bf16(e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / kScaleBlock]));
}

// From the sums of products, of the stream's squares and of the key's.
__device__ float gate_of(const float (&sums)[3], int hidden, float epsilon) {
  const float size = static_cast<float>(hidden);
  const float scale = 1.f / sqrtf(sums[1] / size + epsilon) * (1.f / sqrtf(sums[2] / size + epsilon));
  const float d = sums[0] * scale * (1.f / sqrtf(size));
  return sigmoid_in_lanes(copysignf(sqrtf(fmaxf(fabsf(d), 1e-6f)), d));
}

// A block gates one stream of one token. All threads make products, squares of the stream and squares of the key, eight
// neighbouring columns at a time; three half warps add them out of shared memory (lane_places.cuh): chains of
// hidden / 16 additions. The stream's and the value's columns stay in registers.
constexpr int kHeld = 4, kWideThreads = 160;
__global__ void __launch_bounds__(kWideThreads) gate_wide_kernel(const __grid_constant__ EngramGateParams p) {
  extern __shared__ __align__(16) float terms[];  // [3, hidden]
  __shared__ float sums[3], gate;
  begin_overlapped();
  const int64_t t = blockIdx.x, s = blockIdx.y, streams = p.x.size[1];
  const int hidden = static_cast<int>(p.x.size[2]), mine = 8 * static_cast<int>(threadIdx.x);
  if (p.is_image.data && p.is_image(t)) return;
  bf16* x = &p.x(t, s, 0);
  const bf16* key = p.kv.row(t) + s * hidden;
  const bf16* value = p.kv.row(t) + streams * hidden;
  Eight held[kHeld], values[kHeld];
#pragma unroll
  for (int n = 0; n < kHeld; ++n) {
    const int begin = mine + 8 * kWideThreads * n;
    if (begin >= hidden) break;
    held[n] = load_eight(x + begin);
    const Eight keys = load_eight(key + begin), q = load_eight(p.q_weight.row(s) + begin),
                k = load_eight(p.k_weight.row(s) + begin);
    values[n] = load_eight(value + begin);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float a = to_float(held[n].values[i]), b = to_float(keys.values[i]);
      float* to = terms + lane_place(begin + i);
      to[0] = a * (to_float(q.values[i]) * to_float(k.values[i])) * b;
      to[hidden] = a * a;
      to[2 * hidden] = b * b;
    }
  }
  __syncthreads();
  if (const int sum = static_cast<int>(threadIdx.x) / kLaneThreads; sum < 3) {
    const float all = sum_of_places(terms + sum * hidden, hidden);
    if (threadIdx.x % kLaneThreads == 0) sums[sum] = all;
  }
  __syncthreads();
  if (threadIdx.x == 0) gate = gate_of(sums, hidden, p.epsilon);
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kHeld; ++n) {
    const int begin = mine + 8 * kWideThreads * n;
    if (begin >= hidden) break;
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = to_float(held[n].values[i]) + gate * to_float(values[n].values[i]);
    store_eight(x + begin, rounded(y));
  }
}

// The same for any width.
__global__ void __launch_bounds__(kThreads) gate_any_kernel(EngramGateParams p) {
  begin_overlapped();
  extern __shared__ float terms[];  // [3, hidden]
  __shared__ float sums[3], gate;
  const int64_t t = blockIdx.x, s = blockIdx.y, streams = p.x.size[1];
  const int hidden = static_cast<int>(p.x.size[2]), thread = static_cast<int>(threadIdx.x);
  if (p.is_image.data && p.is_image(t)) return;
  bf16* x = &p.x(t, s, 0);
  const bf16* key = p.kv.row(t) + s * hidden;
  const bf16* value = p.kv.row(t) + streams * hidden;
  const bf16* q_weight = p.q_weight.row(s);
  const bf16* k_weight = p.k_weight.row(s);
#pragma unroll 4
  for (int i = thread; i < hidden; i += kThreads) {
    const float a = to_float(x[i]), b = to_float(key[i]);
    terms[i] = a * (to_float(q_weight[i]) * to_float(k_weight[i])) * b;
    terms[hidden + i] = a * a;
    terms[2 * hidden + i] = b * b;
  }
  __syncthreads();
  if (const int sum = thread / kLaneThreads; sum < 3) {
    float lane = 0;
#pragma unroll 32
    for (int i = thread % kLaneThreads; i < hidden; i += kLaneThreads) lane += terms[sum * hidden + i];
    lane = fold_lanes(lane);
    if (thread % kLaneThreads == 0) sums[sum] = lane;
  }
  __syncthreads();
  if (thread == 0) gate = gate_of(sums, hidden, p.epsilon);
  __syncthreads();
#pragma unroll 4
  for (int i = thread; i < hidden; i += kThreads) x[i] = to_bf16(to_float(x[i]) + gate * to_float(value[i]));
}

void engram_rows_cuda(const ExecutionContext& context, const EngramRowsParams& p) {
  if (p.row.num_elements() == 0) return;
  const dim3 grid(num_blocks(p.row.size[0], 1), num_blocks(p.row.size[1], 1));
  launch_overlapped(context, {grid, kThreads}, rows_kernel, p);
  context.device->launched("engram_rows");
}

void engram_gate_cuda(const ExecutionContext& context, const EngramGateParams& p) {
  if (p.x.num_elements() == 0) return;
  const dim3 grid(num_blocks(p.x.size[0], 1), num_blocks(p.x.size[1], 1));
  const int64_t shared = 3 * p.x.size[2] * static_cast<int64_t>(sizeof(float));
  const auto address = [](const auto* at) { return reinterpret_cast<uintptr_t>(at); };
  const bool is_wide =
      p.x.size[2] % kPlaceColumns == 0 && p.x.size[2] <= 8 * kWideThreads * kHeld &&
      (p.x.stride[0] | p.x.stride[1] | p.kv.stride[0]) % 8 == 0 &&
      (address(p.x.data) | address(p.kv.data) | address(p.q_weight.data) | address(p.k_weight.data)) % 16 == 0;
  if (is_wide) launch_overlapped(context, {grid, kWideThreads, shared}, gate_wide_kernel, p);
  else launch_overlapped(context, {grid, kThreads, shared}, gate_any_kernel, p);
  context.device->launched("engram_gate");
}

}  // namespace

extern const Launch<EngramRowsParams> kEngramRowsCuda = engram_rows_cuda;
extern const Launch<EngramGateParams> kEngramGateCuda = engram_gate_cuda;

}  // namespace deepinfer
