// SPDX-License-Identifier: MIT
#include "kernels/engram_gate/engram_gate.h"
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/lanes/exponential.h"
#include "tensor/float8.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;

__global__ void rows_kernel(EngramRowsParams p) {
  const int64_t t = blockIdx.x, c = blockIdx.y, columns = p.table.columns, row = p.row(t, c);
  const uint8_t* codes = p.table.row(row);
  const uint8_t* scales = p.table.row_scales(row);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads)
    p.out(t, c * columns + i) = to_bf16(e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / kScaleBlock]));
}

// A block gates one stream of one token. All threads make products, squares of the stream and squares of the key, which
// three half warps sum out of shared memory: chains of hidden / 16 additions.
__global__ void __launch_bounds__(kThreads) gate_kernel(EngramGateParams p) {
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
  if (thread == 0) {
    const float size = static_cast<float>(hidden);
    const float scale = 1.f / sqrtf(sums[1] / size + p.epsilon) * (1.f / sqrtf(sums[2] / size + p.epsilon));
    const float d = sums[0] * scale * (1.f / sqrtf(size));
    gate = sigmoid_in_lanes(copysignf(sqrtf(fmaxf(fabsf(d), 1e-6f)), d));
  }
  __syncthreads();
#pragma unroll 4
  for (int i = thread; i < hidden; i += kThreads) x[i] = to_bf16(to_float(x[i]) + gate * to_float(value[i]));
}

void engram_rows_cuda(const ExecutionContext& context, const EngramRowsParams& p) {
  if (p.row.num_elements() == 0) return;
  const dim3 grid(num_blocks(p.row.size[0], 1), num_blocks(p.row.size[1], 1));
  rows_kernel<<<grid, kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("engram_rows");
}

void engram_gate_cuda(const ExecutionContext& context, const EngramGateParams& p) {
  if (p.x.num_elements() == 0) return;
  const dim3 grid(num_blocks(p.x.size[0], 1), num_blocks(p.x.size[1], 1));
  const int64_t shared = 3 * p.x.size[2] * static_cast<int64_t>(sizeof(float));
  allow_shared_memory(gate_kernel, shared);
  gate_kernel<<<grid, kThreads, shared, stream_of(context)>>>(p);
  context.device->launched("engram_gate");
}

}  // namespace

extern const Launch<EngramRowsParams> kEngramRowsCuda = engram_rows_cuda;
extern const Launch<EngramGateParams> kEngramGateCuda = engram_gate_cuda;

}  // namespace deepinfer
