// SPDX-License-Identifier: MIT
// A block attends for sixteen queries of one head, over blocks of 512 keys with a running maximum, as the definition
// says: scores of a block into shared memory (a thread takes two keys), weights and their sum in lane order (a half warp
// takes a query), then the values (a thread takes some channels of a query).
#include <limits>

#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/lanes/exponential.h"
#include "kernels/vision_attention/vision_attention.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256, kQueries = 16, kKeys = static_cast<int>(kVisionKeyBlock), kHeadDimMax = 128;
constexpr int kChannelsMax = kQueries * kHeadDimMax / kThreads;
static_assert(kQueries * kLaneThreads == kThreads);

struct Shared {
  float q[kQueries][kHeadDimMax], weight[kQueries][kKeys];
  float max[kQueries], sum[kQueries], rescale[kQueries];
};

__global__ void __launch_bounds__(kThreads) attend_kernel(VisionAttentionParams p, Range image) {
  extern __shared__ uint8_t memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  const int head = static_cast<int>(blockIdx.y), tid = static_cast<int>(threadIdx.x);
  const int head_dim = static_cast<int>(p.q.size[2]), per_thread = (kQueries * head_dim + kThreads - 1) / kThreads;
  const int64_t first = image.begin + int64_t{blockIdx.x} * kQueries;
  const int num = static_cast<int>(image.end - first < kQueries ? image.end - first : kQueries);
  for (int i = tid; i < kQueries * head_dim; i += kThreads) {
    const int q = i / head_dim;
    s.q[q][i % head_dim] = q < num ? to_float(p.q(first + q, head, i % head_dim)) : 0.f;
  }
  if (tid < kQueries) s.max[tid] = -std::numeric_limits<float>::infinity(), s.sum[tid] = 0;
  float out[kChannelsMax] = {};
  for (int64_t begin = image.begin; begin < image.end; begin += kKeys) {
    const int num_keys = static_cast<int>(image.end - begin < kKeys ? image.end - begin : kKeys);
    __syncthreads();
    for (int j = tid; j < num_keys; j += kThreads) {
      const bf16* key = &p.k(begin + j, head, 0);
      float dot[kQueries] = {};
      for (int d = 0; d < head_dim; ++d) {
        const float k = to_float(key[d]);
#pragma unroll
        for (int q = 0; q < kQueries; ++q) dot[q] = __fmaf_rn(s.q[q][d], k, dot[q]);  // the product is exact
      }
#pragma unroll
      for (int q = 0; q < kQueries; ++q) s.weight[q][j] = dot[q] * p.scale;
    }
    __syncthreads();
    {
      const int q = tid / kLaneThreads, lane = tid % kLaneThreads;
      const unsigned half_warp = 0xFFFFu << (threadIdx.x & 16u);
      float max = s.max[q];
      for (int j = lane; j < num_keys; j += kLaneThreads) max = s.weight[q][j] > max ? s.weight[q][j] : max;
      for (int half = kLaneThreads / 2; half > 0; half /= 2) {
        const float other = __shfl_xor_sync(half_warp, max, half, kLaneThreads);
        max = other > max ? other : max;
      }
      const float rescale = exp_in_lanes(s.max[q] - max);
      const float sum = sum_in_lanes(num_keys, [&](int64_t j) {
        return s.weight[q][j] = exp_in_lanes(s.weight[q][j] - max);
      });
      __syncwarp();
      if (lane == 0) {
        s.sum[q] = s.sum[q] * rescale + sum;
        s.max[q] = max;
        s.rescale[q] = rescale;
      }
    }
    __syncthreads();
    for (int c = 0; c < per_thread; ++c) {
      const int at = tid + c * kThreads, q = at / head_dim, d = at % head_dim;
      if (q >= num) break;
      float o = out[c] * s.rescale[q];
      for (int j = 0; j < num_keys; ++j) o = __fmaf_rn(s.weight[q][j], to_float(p.v(begin + j, head, d)), o);
      out[c] = o;
    }
  }
  for (int c = 0; c < per_thread; ++c) {
    const int at = tid + c * kThreads, q = at / head_dim, d = at % head_dim;
    if (q < num) p.out(first + q, head, d) = to_bf16(out[c] / s.sum[q]);
  }
}

void vision_attention_cuda(const ExecutionContext& context, const VisionAttentionParams& p) {
  CHECK(p.q.size[2] <= kHeadDimMax);
  allow_shared_memory(attend_kernel, sizeof(Shared));
  for (const Range& image : p.images) {
    if (image.empty()) continue;
    const dim3 grid(num_blocks(image.size(), kQueries), static_cast<unsigned>(p.q.size[1]));
    attend_kernel<<<grid, kThreads, sizeof(Shared), stream_of(context)>>>(p, image);
  }
  context.device->launched("vision_attention");
}

}  // namespace

extern const Launch<VisionAttentionParams> kVisionAttentionCuda = vision_attention_cuda;

}  // namespace deepinfer
