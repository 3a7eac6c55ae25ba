// SPDX-License-Identifier: MIT
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/lanes/exponential.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;
constexpr int kMixedMax = (2 + kStreamsMax) * kStreamsMax;

// sinkhorn.h with one thread per coefficient (thread i * n + j): each adds its row's or column's sum in ascending order,
// so all of a row or column have the same. The whole block calls.
__device__ void sinkhorn_together(float* c, int n, int iterations, float epsilon) {
  const int i = static_cast<int>(threadIdx.x) / n, j = static_cast<int>(threadIdx.x) % n;
  const bool is_mine = static_cast<int>(threadIdx.x) < n * n;
  float mine = is_mine ? c[i * n + j] : 0.f;
  if (is_mine) {
    float highest = c[i * n];
    for (int k = 1; k < n; ++k) highest = c[i * n + k] > highest ? c[i * n + k] : highest;
    mine = exp_in_lanes(mine - highest);
  }
  // begin, stride: where the n values of my row or column stand.
  const auto share = [&](int begin, int stride, float in_sum, float added) {
    __syncthreads();
    if (is_mine) c[i * n + j] = mine;
    __syncthreads();
    if (!is_mine) return;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += c[begin + k * stride];
    mine = mine / (sum + in_sum) + added;
  };
  share(i * n, 1, 0.f, epsilon);
  for (int step = 0; step < iterations; ++step) {
    if (step > 0) share(i * n, 1, epsilon, 0.f);
    share(j, n, epsilon, 0.f);
  }
  if (is_mine) c[i * n + j] = mine;
  __syncthreads();
}

// A block mixes one token. Half warp o sums row o of fn against the streams in lane order; one more sums their squares.
__global__ void mix_kernel(StreamMixParams p) {
  extern __shared__ bf16 x[];
  __shared__ float mixed[kMixedMax + 1], comb[kStreamsMax * kStreamsMax];
  const int64_t t = blockIdx.x, size = p.fn.in;
  const int num_out = static_cast<int>(p.fn.out), streams = static_cast<int>(p.x.size[1]);
  for (int64_t k = threadIdx.x; k < size; k += blockDim.x) x[k] = p.x.row(t)[k];
  __syncthreads();
  for (int o = static_cast<int>(threadIdx.x) / kLaneThreads; o <= num_out;
       o += static_cast<int>(blockDim.x) / kLaneThreads) {
    const float* fn = p.fn.data + o * size;
    const float sum = o < num_out ? sum_in_lanes(size, [&](int64_t k) { return to_float(x[k]) * fn[k]; })
                                  : sum_in_lanes(size, [&](int64_t k) { return to_float(x[k]) * to_float(x[k]); });
    if (threadIdx.x % kLaneThreads == 0) mixed[o] = sum;
  }
  __syncthreads();
  const float inverse = 1.f / sqrtf(mixed[num_out] / static_cast<float>(size) + p.norm_epsilon);
  const int i = static_cast<int>(threadIdx.x);
  if (i < streams) {
    p.pre(t, i) = sigmoid_in_lanes(mixed[i] * inverse * p.scale[0] + p.base[i]) + p.epsilon;
    p.post(t, i) = 2.f * sigmoid_in_lanes(mixed[streams + i] * inverse * p.scale[1] + p.base[streams + i]);
  }
  if (i < streams * streams)
    comb[i] = mixed[2 * streams + i] * inverse * p.scale[2] + p.base[2 * streams + i];
  __syncthreads();
  sinkhorn_together(comb, streams, p.iterations, p.epsilon);
  if (i < streams * streams) p.comb(t, i / streams, i % streams) = comb[i];
}

__global__ void collapse_kernel(StreamCollapseParams p) {
  const int64_t t = blockIdx.x, d = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (d >= p.x.size[2]) return;
  float sum = 0;
  for (int64_t s = 0; s < p.x.size[1]; ++s) sum += p.pre(t, s) * to_float(p.x(t, s, d));
  p.out(t, d) = to_bf16(sum);
}

// A thread updates one channel of all streams, so `out` may be `x`.
__global__ void update_kernel(StreamUpdateParams p) {
  const int64_t t = blockIdx.x, d = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const int streams = static_cast<int>(p.x.size[1]);
  if (d >= p.x.size[2]) return;
  float x[kStreamsMax];
#pragma unroll
  for (int s = 0; s < kStreamsMax; ++s) x[s] = s < streams ? to_float(p.x(t, s, d)) : 0.f;
  const float y = to_float(p.y(t, d));
  for (int j = 0; j < streams; ++j) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kStreamsMax; ++i)
      if (i < streams) sum += p.comb(t, i, j) * x[i];
    p.out(t, j, d) = to_bf16(sum + p.post(t, j) * y);
  }
}

void stream_mix_cuda(const ExecutionContext& context, const StreamMixParams& p) {
  if (p.x.size[0] == 0) return;
  const int64_t shared = p.fn.in * static_cast<int64_t>(sizeof(bf16));
  const int64_t half_warps = std::min<int64_t>(p.fn.out + 1, 48);
  const unsigned threads = num_blocks(half_warps * kLaneThreads, 64) * 64;  // 64 coefficients at most
  allow_shared_memory(mix_kernel, shared);
  mix_kernel<<<num_blocks(p.x.size[0], 1), threads, shared, stream_of(context)>>>(p);
  context.device->launched("stream_mix");
}

void stream_collapse_cuda(const ExecutionContext& context, const StreamCollapseParams& p) {
  if (p.out.num_elements() == 0) return;
  const dim3 grid(num_blocks(p.x.size[0], 1), num_blocks(p.x.size[2], kThreads));
  collapse_kernel<<<grid, kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("stream_collapse");
}

void stream_update_cuda(const ExecutionContext& context, const StreamUpdateParams& p) {
  if (p.x.num_elements() == 0) return;
  const dim3 grid(num_blocks(p.x.size[0], 1), num_blocks(p.x.size[2], kThreads));
  update_kernel<<<grid, kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("stream_update");
}

}  // namespace

extern const Launch<StreamMixParams> kStreamMixCuda = stream_mix_cuda;
extern const Launch<StreamCollapseParams> kStreamCollapseCuda = stream_collapse_cuda;
extern const Launch<StreamUpdateParams> kStreamUpdateCuda = stream_update_cuda;

}  // namespace deepinfer
