// SPDX-License-Identifier: MIT
// Update, collapse and norm of four streams in one kernel: a block has a token, a thread the same channels of all its
// streams, whose collapsed values stay in shared memory until the norm is known. Every value is rounded as the three kernels round it.
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/eight.cuh"
#include "kernels/lanes/cuda/lane_places.cuh"

namespace deepinfer {

extern const Launch<StreamUpdateParams> kStreamUpdateCuda;
extern const Launch<StreamCollapseParams> kStreamCollapseCuda;
extern const Launch<NormParams> kNormCuda;

namespace {

constexpr int kStreams = 4, kThreads = 320, kHiddenMax = 16 << 10;

// Stream j of the channels, written, and what it adds to the collapsed ones.
__device__ void advance_stream(const StreamAdvanceParams& p, int j, const Eight (&x)[kStreams],
                               const Eight& y, int64_t t, int begin, float (&collapsed)[8]) {
  float updated[8], comb[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) comb[i] = p.update.comb(t, i, j);
  const float post = p.update.post(t, j), pre = p.pre(t, j);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) sum += comb[i] * to_float(x[i].values[k]);
    updated[k] = sum + post * to_float(y.values[k]);
  }
  const Eight out = rounded(updated);
#pragma unroll
  for (int k = 0; k < 8; ++k) collapsed[k] += pre * to_float(out.values[k]);
  store_eight(&p.update.out(t, j, begin), out);
}

// kInLanes: the squares are added in lane order, a chain of hidden / 16 additions; else each thread adds its own first.
template <bool kInLanes>
__global__ void __launch_bounds__(kThreads, 3) advance_kernel(const __grid_constant__ StreamAdvanceParams p) {
  extern __shared__ __align__(16) float squares[];  // where they are added in lanes; and the collapsed streams
  __shared__ BlockSum<kThreads> sum;
  const int hidden = static_cast<int>(p.update.x.size[2]), thread = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.x;
  bf16* u = reinterpret_cast<bf16*>(squares + (kInLanes ? hidden : 0));
  begin_overlapped();
  float own = 0;
#pragma unroll 1
  for (int begin = 8 * thread; begin < hidden; begin += 8 * kThreads) {
    Eight x[kStreams];
#pragma unroll
    for (int s = 0; s < kStreams; ++s) x[s] = load_eight(&p.update.x(t, s, begin));
    const Eight y = load_eight(&p.update.y(t, begin));
    float collapsed[8] = {};
#pragma unroll 1  // unrolled, the streams stand as floats in more registers than there are
    for (int j = 0; j < kStreams; ++j) advance_stream(p, j, x, y, t, begin, collapsed);
    const Eight mine = rounded(collapsed);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float value = to_float(mine.values[k]);
      if constexpr (kInLanes) squares[lane_place(begin + k)] = value * value;
      else own = __fmaf_rn(value, value, own);
    }
    store_eight(u + begin, mine);
  }
  const float all = kInLanes ? sum.of_places(squares, hidden) : sum.of_threads(own);
  const float inverse = 1.f / sqrtf(all / static_cast<float>(hidden) + p.norm_epsilon);
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

template <bool kInLanes>
void stream_advance(const ExecutionContext& context, const StreamAdvanceParams& p) {
  if (p.input.num_elements() == 0) return;
  if (!takes(p)) {
    kStreamUpdateCuda(context, p.update);
    kStreamCollapseCuda(context, collapse_of(p));
    return kNormCuda(context, norm_of(p));
  }
  const int64_t bytes_each = sizeof(bf16) + (kInLanes ? sizeof(float) : 0);
  launch_overlapped(context, {num_blocks(p.input.size[0], 1), kThreads, p.input.size[1] * bytes_each},
                    advance_kernel<kInLanes>, p);
  context.device->launched("stream_advance");
}

}  // namespace

extern const Launch<StreamAdvanceParams> kStreamAdvanceCuda = stream_advance<true>;
extern const Launch<StreamAdvanceParams> kStreamAdvanceFastCuda = stream_advance<false>;

}  // namespace deepinfer
