// SPDX-License-Identifier: MIT
#include <algorithm>

#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/exponential.h"
#include "kernels/router/router.h"

namespace deepinfer {
namespace {

__device__ float score_of(RouterScore score, float z) {
  if (score == RouterScore::kSigmoid) return sigmoid_in_lanes(z);
  if (score == RouterScore::kSoftmax) return z;
  return sqrtf(z > 20.f ? z : static_cast<float>(log1p(exp(static_cast<double>(z)))));
}

__device__ void softmax(float* scores, int experts) {
  float highest = scores[0];
  for (int e = 1; e < experts; ++e) highest = scores[e] > highest ? scores[e] : highest;
  __syncwarp();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += 32) scores[e] = exp_in_lanes(scores[e] - highest);
  __syncwarp();
  const float total = sum_in_lanes(experts, [&](int64_t e) { return scores[e]; });  // both half warps sum the same
  __syncwarp();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += 32) scores[e] /= total;
}

struct Best {
  float ranking;
  int expert;  // -1: none
};

// The better of two: higher ranking, then lower id.
__device__ Best better(Best a, Best b) {
  if (a.expert < 0) return b;
  if (b.expert < 0) return a;
  return b.ranking > a.ranking || (!(a.ranking > b.ranking) && b.expert < a.expert) ? b : a;
}

// The best of a warp's threads, each with the best of its own; all get it.
__device__ Best best_of_warp(Best best) {
  for (int half = 16; half > 0; half /= 2)
    best = better(best, {__shfl_xor_sync(0xFFFFFFFFu, best.ranking, half),
                         __shfl_xor_sync(0xFFFFFFFFu, best.expert, half)});
  return best;
}
__device__ Best best_of_mine(const float* ranking, const uint8_t* taken, int experts) {
  Best best{0, -1};
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += 32)
    if (!taken[e]) best = better(best, {ranking[e], e});
  return best;
}

// A block routes one token: all threads score, one warp chooses. Only the thread that had the last choice looks again.
__global__ void router_kernel(RouterParams p) {
  begin_overlapped();
  extern __shared__ float shared[];
  const int64_t t = blockIdx.x;
  const int experts = static_cast<int>(p.logits.size[1]), choices = static_cast<int>(p.expert.size[1]);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  float* scores = shared;
  float* ranking = shared + experts;
  uint8_t* taken = reinterpret_cast<uint8_t*>(shared + 2 * experts);
  for (int e = thread; e < experts; e += threads) scores[e] = score_of(p.score, p.logits(t, e) / p.temperature);
  __syncthreads();
  if (p.score == RouterScore::kSoftmax && thread < 32) softmax(scores, experts);
  __syncthreads();
  const bool is_image = p.is_image.data && p.is_image(t) && !p.image_bias.empty();
  const F32Vector& bias = is_image ? p.image_bias : p.bias;
  for (int e = thread; e < experts; e += threads) {
    ranking[e] = scores[e] + (bias.empty() ? 0.f : bias[e]);
    taken[e] = 0;
  }
  __syncthreads();
  if (thread >= 32) return;
  float sum = 0;
  Best mine = best_of_mine(ranking, taken, experts);
  for (int c = 0; c < choices; ++c) {
    const Best best = best_of_warp(mine);
    sum += scores[best.expert];
    if (best.expert % 32 == thread) {
      taken[best.expert] = 1;
      p.expert(t, c) = best.expert;
      p.weight(t, c) = scores[best.expert];
      mine = best_of_mine(ranking, taken, experts);
    }
  }
  __syncwarp();
  for (int c = thread; c < choices; c += 32) {
    float weight = p.weight(t, c);
    if (p.normalize && choices > 1) weight /= sum + 1e-20f;
    p.weight(t, c) = weight * p.routed_scale;
  }
}

void router_cuda(const ExecutionContext& context, const RouterParams& p) {
  if (p.logits.size[0] == 0) return;
  const int64_t shared = p.logits.size[1] * (2 * static_cast<int64_t>(sizeof(float)) + 1);
  allow_shared_memory(router_kernel, shared);
  const unsigned threads = std::min(num_blocks(p.logits.size[1], 32) * 32, 512u);
  launch_overlapped(context, {num_blocks(p.logits.size[0], 1), threads, shared}, router_kernel, p);
  context.device->launched("router");
}

}  // namespace

extern const Launch<RouterParams> kRouterCuda = router_cuda;

}  // namespace deepinfer
