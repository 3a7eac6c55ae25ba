// SPDX-License-Identifier: MIT
#include <cuda_pipeline.h>

#include "kernels/hyper_connection/cuda/sinkhorn_together.cuh"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/exponential.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;

// Sum of one row of fn (or, behind the last, of the squares) over one token in lane order, a block each: for the few
// tokens whose blocks would leave most of the device idle. All threads copy chunks ahead and multiply; a half warp
// adds: a chain as long as a sixteenth of the row, which is what this takes. Products stand so that a lane finds its
// next four in one load.
constexpr int kMixSlots = 3, kMixChunk = 2048, kFewTokens = 4;
struct MixStage {
  alignas(16) float fn[kMixChunk];
  alignas(16) bf16 x[kMixChunk];
};
struct MixShared {
  MixStage stages[kMixSlots];
  alignas(16) float products[2][kMixChunk];
};
__device__ constexpr int product_place(int k) {
  return k / (4 * kLaneThreads) * (4 * kLaneThreads) + k % kLaneThreads * 4 + k / kLaneThreads % 4;
}

__device__ void stage_mix(const StreamMixParams& p, MixStage& stage, int64_t row, int64_t t, int64_t begin,
                          bool is_aligned) {
  const int64_t left = p.fn.in - begin;
  const int columns = static_cast<int>(left < kMixChunk ? left : kMixChunk), thread = static_cast<int>(threadIdx.x);
  const float* fn = p.fn.data + row * p.fn.in + begin;
  const bf16* x = p.x.row(t) + begin;
  if (!is_aligned) {
    for (int i = thread; i < columns; i += kThreads) {
      if (row < p.fn.out) stage.fn[i] = fn[i];
      stage.x[i] = x[i];
    }
    return;
  }
  if (row < p.fn.out)
    for (int i = 4 * thread; i < columns; i += 4 * kThreads) __pipeline_memcpy_async(stage.fn + i, fn + i, 16);
  for (int i = 8 * thread; i < columns; i += 8 * kThreads) __pipeline_memcpy_async(stage.x + i, x + i, 16);
}

__device__ float add_products(const float* products, int columns, int lane, float sum) {
  if (columns == kMixChunk) {
#pragma unroll 8
    for (int i = 0; i < kMixChunk / kLaneThreads; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(products + i * kLaneThreads + 4 * lane);
      sum = sum + four.x + four.y + four.z + four.w;  // in this order
    }
  } else {
    for (int k = lane; k < columns; k += kLaneThreads) sum += products[product_place(k)];
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads) mix_sum_kernel(StreamMixParams p, float* sums, bool is_aligned) {
  begin_overlapped();
  extern __shared__ float4 shared[];
  auto& s = *reinterpret_cast<MixShared*>(shared);
  const int64_t row = blockIdx.x, t = blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x), chunks = static_cast<int>((p.fn.in + kMixChunk - 1) / kMixChunk);
  const auto columns_of = [&](int n) {
    return static_cast<int>(min(p.fn.in - int64_t{n} * kMixChunk, int64_t{kMixChunk}));
  };
  float sum = 0;
  for (int n = 0; n < kMixSlots - 1; ++n) {
    if (n < chunks) stage_mix(p, s.stages[n], row, t, int64_t{n} * kMixChunk, is_aligned);
    __pipeline_commit();
  }
  for (int n = 0; n <= chunks; ++n) {  // adds the chunk before while the others multiply
    __pipeline_wait_prior(kMixSlots - 2);
    __syncthreads();
    if (const int next = n + kMixSlots - 1; next < chunks)
      stage_mix(p, s.stages[next % kMixSlots], row, t, int64_t{next} * kMixChunk, is_aligned);
    __pipeline_commit();
    for (int k = thread; n < chunks && k < columns_of(n); k += kThreads) {
      const float x = to_float(s.stages[n % kMixSlots].x[k]);
      s.products[n % 2][product_place(k)] = x * (row == p.fn.out ? x : s.stages[n % kMixSlots].fn[k]);
    }
    if (n > 0 && thread < kLaneThreads) sum = add_products(s.products[(n - 1) % 2], columns_of(n - 1), thread, sum);
  }
  if (thread >= kLaneThreads) return;
  sum = fold_lanes(sum);
  if (thread == 0) sums[t * (p.fn.out + 1) + row] = sum;
}

// The same for many tokens, a block each: half warp o sums row o of fn against the streams; one more sums their
// squares.
__global__ void mix_sums_kernel(StreamMixParams p, float* sums) {
  begin_overlapped();
  extern __shared__ bf16 x[];
  const int64_t t = blockIdx.x, size = p.fn.in;
  const int num_out = static_cast<int>(p.fn.out);
  for (int64_t k = threadIdx.x; k < size; k += blockDim.x) x[k] = p.x.row(t)[k];
  __syncthreads();
  for (int o = static_cast<int>(threadIdx.x) / kLaneThreads; o <= num_out;
       o += static_cast<int>(blockDim.x) / kLaneThreads) {
    const float* fn = p.fn.data + o * size;
    const float sum = o < num_out ? sum_in_lanes(size, [&](int64_t k) { return to_float(x[k]) * fn[k]; })
                                  : sum_in_lanes(size, [&](int64_t k) { return to_float(x[k]) * to_float(x[k]); });
    if (threadIdx.x % kLaneThreads == 0) sums[t * (num_out + 1) + o] = sum;
  }
}

// A block makes the coefficients of one token, a thread each of comb.
__global__ void coefficients_kernel(StreamMixParams p, const float* sums) {
  begin_overlapped();
  __shared__ float comb[kStreamsMax * kStreamsMax];
  const int64_t t = blockIdx.x, size = p.fn.in;
  const int num_out = static_cast<int>(p.fn.out), streams = static_cast<int>(p.x.size[1]);
  const float* mixed = sums + t * (num_out + 1);
  const float inverse = 1.f / sqrtf(mixed[num_out] / static_cast<float>(size) + p.norm_epsilon);
  const int i = static_cast<int>(threadIdx.x);
  if (i < streams) {
    p.pre(t, i) = sigmoid_in_lanes(mixed[i] * inverse * p.scale[0] + p.base[i]) + p.epsilon;
    p.post(t, i) = 2.f * sigmoid_in_lanes(mixed[streams + i] * inverse * p.scale[1] + p.base[streams + i]);
  }
  const bool is_mine = i < streams * streams;
  float mine = is_mine ? mixed[2 * streams + i] * inverse * p.scale[2] + p.base[2 * streams + i] : 0.f;
  mine = streams == 4 ? sinkhorn_together<4>(mine, comb, streams, p.iterations, p.epsilon)
                      : sinkhorn_together<0>(mine, comb, streams, p.iterations, p.epsilon);
  if (is_mine) p.comb(t, i / streams, i % streams) = mine;
}

// Eight neighbouring channels in one load or store where kWidth is 8.
template <int kWidth>
struct alignas(2 * kWidth) Channels {
  bf16 values[kWidth];
};
template <int kWidth>
__device__ Channels<kWidth> channels_at(const bf16* from) {
  return *reinterpret_cast<const Channels<kWidth>*>(from);
}

template <int kWidth>
__global__ void collapse_kernel(StreamCollapseParams p) {
  begin_overlapped();
  const int64_t t = blockIdx.x, d = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kWidth;
  if (d >= p.x.size[2]) return;
  float sums[kWidth] = {};
#pragma unroll 4
  for (int64_t s = 0; s < p.x.size[1]; ++s) {
    const Channels<kWidth> x = channels_at<kWidth>(&p.x(t, s, d));
    const float pre = p.pre(t, s);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] += pre * to_float(x.values[i]);
  }
  Channels<kWidth> out;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) out.values[i] = to_bf16(sums[i]);
  *reinterpret_cast<Channels<kWidth>*>(&p.out(t, d)) = out;
}

// A thread updates the same channels of all streams, so `out` may be `x`.
template <int kStreams, int kWidth>  // kStreams: the most there may be
__global__ void update_kernel(StreamUpdateParams p) {
  begin_overlapped();
  const int64_t t = blockIdx.x, d = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kWidth;
  const int streams = kStreams == kStreamsMax ? static_cast<int>(p.x.size[1]) : kStreams;
  if (d >= p.x.size[2]) return;
  Channels<kWidth> x[kStreams];
#pragma unroll
  for (int s = 0; s < kStreams; ++s)
    if (s < streams) x[s] = channels_at<kWidth>(&p.x(t, s, d));
  const Channels<kWidth> y = channels_at<kWidth>(&p.y(t, d));
  for (int j = 0; j < streams; ++j) {
    float sums[kWidth] = {};
#pragma unroll
    for (int i = 0; i < kStreams; ++i)
      if (i < streams) {
        const float by = p.comb(t, i, j);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[k] += by * to_float(x[i].values[k]);
      }
    const float post = p.post(t, j);
    Channels<kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.values[k] = to_bf16(sums[k] + post * to_float(y.values[k]));
    *reinterpret_cast<Channels<kWidth>*>(&p.out(t, j, d)) = out;
  }
}

template <typename... Views>
bool is_wide(int64_t hidden, const Views&... views) {
  const auto fits = [](const auto& v) {
    bool good = reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
    for (size_t i = 0; i + 1 < v.stride.size(); ++i) good &= v.stride[i] % 8 == 0;
    return good;
  };
  return hidden % 8 == 0 && (fits(views) && ...);
}

void stream_mix_cuda(const ExecutionContext& context, const StreamMixParams& p) {
  const int64_t tokens = p.x.size[0], streams = p.x.size[1];
  if (tokens == 0) return;
  const Scratch::Frame frame(*context.scratch);
  float* sums = context.scratch->take<float>(tokens * (p.fn.out + 1));
  if (tokens <= kFewTokens) {
    const bool is_aligned = p.fn.in % 8 == 0 && p.x.stride[0] % 8 == 0 &&
                            (reinterpret_cast<uintptr_t>(p.fn.data) | reinterpret_cast<uintptr_t>(p.x.data)) % 16 == 0;
    const dim3 grid(static_cast<unsigned>(p.fn.out + 1), num_blocks(tokens, 1));
    allow_shared_memory(mix_sum_kernel, sizeof(MixShared));
    launch_overlapped(context, {grid, kThreads, sizeof(MixShared)}, mix_sum_kernel, p, sums, is_aligned);
  } else {
    const int64_t shared = p.fn.in * static_cast<int64_t>(sizeof(bf16));
    const int64_t half_warps = std::min<int64_t>(p.fn.out + 1, 48);
    allow_shared_memory(mix_sums_kernel, shared);
    launch_overlapped(context, {num_blocks(tokens, 1), num_blocks(half_warps * kLaneThreads, 64) * 64, shared},
                      mix_sums_kernel, p, sums);
  }
  launch_overlapped(context, {num_blocks(tokens, 1), num_blocks(streams * streams, 32) * 32}, coefficients_kernel, p,
                    sums);
  context.device->launched("stream_mix");
}

void stream_collapse_cuda(const ExecutionContext& context, const StreamCollapseParams& p) {
  if (p.out.num_elements() == 0) return;
  const int64_t tokens = p.x.size[0], hidden = p.x.size[2];
  const auto grid = [&](int64_t width) { return dim3(num_blocks(tokens, 1), num_blocks(hidden, width * kThreads)); };
  if (is_wide(hidden, p.x, p.out)) launch_overlapped(context, {grid(8), kThreads}, collapse_kernel<8>, p);
  else launch_overlapped(context, {grid(1), kThreads}, collapse_kernel<1>, p);
  context.device->launched("stream_collapse");
}

void stream_update_cuda(const ExecutionContext& context, const StreamUpdateParams& p) {
  if (p.x.num_elements() == 0) return;
  const int64_t tokens = p.x.size[0], hidden = p.x.size[2];
  const auto grid = [&](int64_t width) { return dim3(num_blocks(tokens, 1), num_blocks(hidden, width * kThreads)); };
  if (p.x.size[1] == 4 && is_wide(hidden, p.x, p.y, p.out))
    launch_overlapped(context, {grid(8), kThreads}, update_kernel<4, 8>, p);
  else launch_overlapped(context, {grid(1), kThreads}, update_kernel<kStreamsMax, 1>, p);
  context.device->launched("stream_update");
}

}  // namespace

extern const Launch<StreamMixParams> kStreamMixCuda = stream_mix_cuda;
extern const Launch<StreamCollapseParams> kStreamCollapseCuda = stream_collapse_cuda;
extern const Launch<StreamUpdateParams> kStreamUpdateCuda = stream_update_cuda;

}  // namespace deepinfer
