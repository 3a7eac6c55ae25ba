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

// A block gates one stream of one token. Three half warps sum products, squares of the stream and squares of the key.
__global__ void gate_kernel(EngramGateParams p) {
  __shared__ float sums[3], gate;
  const int64_t t = blockIdx.x, s = blockIdx.y, streams = p.x.size[1], hidden = p.x.size[2];
  if (p.is_image.data && p.is_image(t)) return;
  bf16* x = &p.x(t, s, 0);
  const bf16* key = p.kv.row(t) + s * hidden;
  const bf16* value = p.kv.row(t) + streams * hidden;
  const bf16* q_weight = p.q_weight.row(s);
  const bf16* k_weight = p.k_weight.row(s);
  const int sum_idx = static_cast<int>(threadIdx.x) / kLaneThreads;
  if (sum_idx < 3) {
    const float sum = sum_in_lanes(hidden, [&](int64_t i) {
      const float a = to_float(x[i]), b = to_float(key[i]);
      if (sum_idx == 0) return a * (to_float(q_weight[i]) * to_float(k_weight[i])) * b;
      return sum_idx == 1 ? a * a : b * b;
    });
    if (threadIdx.x % kLaneThreads == 0) sums[sum_idx] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const float size = static_cast<float>(hidden);
    const float scale = 1.f / sqrtf(sums[1] / size + p.epsilon) * (1.f / sqrtf(sums[2] / size + p.epsilon));
    const float d = sums[0] * scale * (1.f / sqrtf(size));
    gate = sigmoid_in_lanes(copysignf(sqrtf(fmaxf(fabsf(d), 1e-6f)), d));
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < hidden; i += kThreads) x[i] = to_bf16(to_float(x[i]) + gate * to_float(value[i]));
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
  gate_kernel<<<grid, kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("engram_gate");
}

}  // namespace

extern const Launch<EngramRowsParams> kEngramRowsCuda = engram_rows_cuda;
extern const Launch<EngramGateParams> kEngramGateCuda = engram_gate_cuda;

}  // namespace deepinfer
