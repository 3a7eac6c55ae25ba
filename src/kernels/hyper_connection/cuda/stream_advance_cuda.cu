// SPDX-License-Identifier: MIT
// Update, collapse and norm of four streams in one kernel: a block has a token, a thread the same channels of all its
// streams, whose collapsed values stay in shared memory until the norm is known. Every value is rounded as the three kernels round it.
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/lanes/cuda/eight.cuh"
#include "kernels/lanes/cuda/lane_places.cuh"
#include "kernels/linear/cuda/begin_overlapped.cuh"

namespace deepinfer {

extern const Launch<StreamUpdateParams> kStreamUpdateCuda;
extern const Launch<StreamCollapseParams> kStreamCollapseCuda;
extern const Launch<NormParams> kNormCuda;

namespace {

constexpr int kStreams = 4, kThreads = 320, kHiddenMax = 16 << 10;

struct Coefficients {
  float comb[kStreams][kStreams], post[kStreams], pre[kStreams];
};

// Stream j of the channels, written, and what it adds to the collapsed ones.
__device__ void advance_stream(const StreamAdvanceParams& p, const Coefficients& by, int j, const Eight (&x)[kStreams],
                               const Eight& y, int64_t t, int begin, float (&collapsed)[8]) {
  float updated[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) sum += by.comb[i][j] * to_float(x[i].values[k]);
    updated[k] = sum + by.post[j] * to_float(y.values[k]);
  }
  const Eight out = rounded(updated);
#pragma unroll
  for (int k = 0; k < 8; ++k) collapsed[k] += by.pre[j] * to_float(out.values[k]);
  store_eight(&p.update.out(t, j, begin), out);
}

__global__ void __launch_bounds__(kThreads, 3) advance_kernel(const __grid_constant__ StreamAdvanceParams p) {
  extern __shared__ __align__(16) float squares[];  // and behind them the collapsed streams
  __shared__ Coefficients by;
  __shared__ float inverse;
  const int hidden = static_cast<int>(p.update.x.size[2]), thread = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.x;
  bf16* u = reinterpret_cast<bf16*>(squares + hidden);
  begin_overlapped();
  if (thread < kStreams * kStreams)
    by.comb[thread / kStreams][thread % kStreams] = p.update.comb(t, thread / kStreams, thread % kStreams);
  if (thread < kStreams) by.post[thread] = p.update.post(t, thread), by.pre[thread] = p.pre(t, thread);
  __syncthreads();
#pragma unroll 1
  for (int begin = 8 * thread; begin < hidden; begin += 8 * kThreads) {
    Eight x[kStreams];
#pragma unroll
    for (int s = 0; s < kStreams; ++s) x[s] = load_eight(&p.update.x(t, s, begin));
    const Eight y = load_eight(&p.update.y(t, begin));
    float collapsed[8] = {};
#pragma unroll 1  // unrolled, the streams stand as floats in more registers than there are
    for (int j = 0; j < kStreams; ++j) advance_stream(p, by, j, x, y, t, begin, collapsed);
    const Eight mine = rounded(collapsed);
#pragma unroll
    for (int k = 0; k < 8; ++k) squares[lane_place(begin + k)] = to_float(mine.values[k]) * to_float(mine.values[k]);
    store_eight(u + begin, mine);
  }
  __syncthreads();
  if (thread < kLaneThreads) {
    const float sum = sum_of_places(squares, hidden);
    if (thread == 0) inverse = 1.f / sqrtf(sum / static_cast<float>(hidden) + p.norm_epsilon);
  }
  __syncthreads();
  for (int begin = 8 * thread; begin < hidden; begin += 8 * kThreads)
    store_eight(&p.input(t, begin), normed(load_eight(u + begin), load_eight(p.norm_weight.data + begin), inverse));
}

template <typename Rows>
bool is_wide(const Rows& view) {
  bool good = reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
  for (size_t i = 0; i + 1 < view.stride.size(); ++i) good &= view.stride[i] % 8 == 0;
  return good;
}

bool takes(const StreamAdvanceParams& p) {
  const int64_t hidden = p.update.x.size[2];
  return p.update.x.size[1] == kStreams && hidden % kPlaceColumns == 0 && hidden <= kHiddenMax && is_wide(p.update.x) &&
         is_wide(p.update.y) && is_wide(p.update.out) && is_wide(p.input) &&
         reinterpret_cast<uintptr_t>(p.norm_weight.data) % 16 == 0;
}

void stream_advance_cuda(const ExecutionContext& context, const StreamAdvanceParams& p) {
  if (p.input.num_elements() == 0) return;
  if (!takes(p)) {
    kStreamUpdateCuda(context, p.update);
    kStreamCollapseCuda(context, collapse_of(p));
    return kNormCuda(context, norm_of(p));
  }
  const int64_t shared = p.input.size[1] * static_cast<int64_t>(sizeof(float) + sizeof(bf16));
  launch_overlapped(context, {num_blocks(p.input.size[0], 1), kThreads, shared}, advance_kernel, p);
  context.device->launched("stream_advance");
}

}  // namespace

extern const Launch<StreamAdvanceParams> kStreamAdvanceCuda = stream_advance_cuda;

}  // namespace deepinfer
