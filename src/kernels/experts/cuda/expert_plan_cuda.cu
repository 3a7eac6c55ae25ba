// SPDX-License-Identifier: MIT
#include "kernels/experts/experts.h"
#include "kernels/lanes/cuda/launch.cuh"

namespace deepinfer {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// One block counts the choices of every expert and adds them up.
__global__ void count_kernel(ExpertPlanParams p) {
  extern __shared__ int counts[];
  const int64_t experts = p.begin.size[0] - 1, choices = p.expert.size[1], total = p.expert.num_elements();
  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < total; i += blockDim.x) atomicAdd(&counts[p.expert(i / choices, i % choices)], 1);
  __syncthreads();
  if (threadIdx.x != 0) return;
  int32_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    p.begin(e) = begin;
    begin += counts[e];
  }
  p.begin(experts) = begin;
}

// Block e places the choices of expert e, tokens ascending: it walks all choices and counts its own.
__global__ void place_kernel(ExpertPlanParams p) {
  __shared__ int warp_counts[kWarps];
  const int64_t choices = p.expert.size[1], total = p.expert.num_elements();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int32_t place = p.begin(blockIdx.x);
  const int32_t end = p.begin(blockIdx.x + 1);
  for (int64_t first = 0; first < total && place < end; first += kThreads) {
    const int64_t i = first + threadIdx.x, t = i / choices, c = i % choices;
    const bool is_mine = i < total && p.expert(t, c) == static_cast<int32_t>(blockIdx.x);
    const unsigned votes = __ballot_sync(0xFFFFFFFFu, is_mine);
    if (lane == 0) warp_counts[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1)), found = 0;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before += warp_counts[w];
      found += warp_counts[w];
    }
    if (is_mine) {
      p.token(place + before) = static_cast<int32_t>(t);
      p.assignment_weight(place + before) = p.weight(t, c);
      p.assignment(t, c) = place + before;
    }
    place += found;
    __syncthreads();
  }
}

// A thread sorts one token's assignments: they ascend with the expert id.
__global__ void order_kernel(View<int32_t, dim::tokens, dim::choices> assignment) {
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= assignment.size[0]) return;
  int32_t* row = assignment.row(t);
  for (int64_t i = 1; i < assignment.size[1]; ++i) {
    const int32_t moving = row[i];
    int64_t at = i;
    for (; at > 0 && row[at - 1] > moving; --at) row[at] = row[at - 1];
    row[at] = moving;
  }
}

void expert_plan_cuda(const ExecutionContext& context, const ExpertPlanParams& p) {
  const int64_t experts = p.begin.size[0] - 1, shared = experts * static_cast<int64_t>(sizeof(int));
  allow_shared_memory(count_kernel, shared);
  count_kernel<<<1, 1024, shared, stream_of(context)>>>(p);
  if (p.expert.num_elements() > 0) {
    place_kernel<<<num_blocks(experts, 1), kThreads, 0, stream_of(context)>>>(p);
    order_kernel<<<num_blocks(p.expert.size[0], kThreads), kThreads, 0, stream_of(context)>>>(p.assignment);
  }
  context.device->launched("expert_plan");
}

// A thread adds one channel of one token, assignments in ascending expert id.
__global__ void combine_kernel(ExpertCombineParams p) {
  const int64_t t = blockIdx.x, d = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (d >= p.out.size[1]) return;
  float sum = 0;
  for (int64_t c = 0; c < p.assignment.size[1]; ++c) sum += to_float(p.y(p.assignment(t, c), d));
  if (p.shared.data) sum += to_float(p.shared(t, d));
  p.out(t, d) = to_bf16(sum);
}

void expert_combine_cuda(const ExecutionContext& context, const ExpertCombineParams& p) {
  if (p.out.num_elements() == 0) return;
  const dim3 grid(num_blocks(p.out.size[0], 1), num_blocks(p.out.size[1], kThreads));
  combine_kernel<<<grid, kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("expert_combine");
}

}  // namespace

extern const Launch<ExpertPlanParams> kExpertPlanCuda = expert_plan_cuda;
extern const Launch<ExpertCombineParams> kExpertCombineCuda = expert_combine_cuda;

}  // namespace deepinfer
