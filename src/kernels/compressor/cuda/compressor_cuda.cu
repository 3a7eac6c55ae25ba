// SPDX-License-Identifier: MIT
#include "kernels/compressor/compressor.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/exponential.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 128;

// A block pools one group, a thread one channel at a time.
__global__ void pool_kernel(CompressorPoolParams p) {
  begin_overlapped();
  const int64_t g = blockIdx.x, head_dim = p.kv.size[1], num_rows = p.num_rows(g);
  const float* kv[kCompressRatioMax];
  const float* gate[kCompressRatioMax];
  for (int i = 0; i < p.ratio; ++i) {
    const int64_t age = p.ratio - 1 - i;  // tokens before the group's last
    const float* tail = &p.tail(p.lane(g), (p.last_position(g) - age) % p.tail.size[1], 0);
    kv[i] = age < num_rows ? p.kv.row(p.last_row(g) - age) : tail;
    gate[i] = age < num_rows ? p.gate.row(p.last_row(g) - age) : tail + head_dim;
  }
  for (int64_t d = threadIdx.x; d < head_dim; d += kThreads) {
    float highest = gate[0][d], sum = 0, weight[kCompressRatioMax], pooled = 0;
    for (int i = 1; i < p.ratio; ++i) highest = gate[i][d] > highest ? gate[i][d] : highest;
    for (int i = 0; i < p.ratio; ++i) sum += weight[i] = exp_in_lanes(gate[i][d] - highest);
    for (int i = 0; i < p.ratio; ++i) pooled += weight[i] / sum * kv[i][d];
    p.out(g, d) = to_bf16(pooled);
  }
}

__global__ void tail_kernel(CompressorTailParams p) {
  begin_overlapped();
  const int64_t t = blockIdx.x, head_dim = p.kv.size[1];
  if (p.position(t) < 0) return;
  float* slot = &p.tail(p.lane(t), p.position(t) % p.tail.size[1], 0);
  for (int64_t d = threadIdx.x; d < head_dim; d += kThreads) {
    slot[d] = p.kv(t, d);
    slot[head_dim + d] = p.gate(t, d);
  }
}

void compressor_pool_cuda(const ExecutionContext& context, const CompressorPoolParams& p) {
  if (p.out.num_elements() == 0) return;
  launch_overlapped(context, {num_blocks(p.out.size[0], 1), kThreads}, pool_kernel, p);
  context.device->launched("compressor_pool");
}

void compressor_tail_cuda(const ExecutionContext& context, const CompressorTailParams& p) {
  if (p.kv.num_elements() == 0) return;
  launch_overlapped(context, {num_blocks(p.kv.size[0], 1), kThreads}, tail_kernel, p);
  context.device->launched("compressor_tail");
}

}  // namespace

extern const Launch<CompressorPoolParams> kCompressorPoolCuda = compressor_pool_cuda;
extern const Launch<CompressorTailParams> kCompressorTailCuda = compressor_tail_cuda;

}  // namespace deepinfer
