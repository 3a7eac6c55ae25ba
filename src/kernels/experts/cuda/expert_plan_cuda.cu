// SPDX-License-Identifier: MIT
#include <algorithm>

#include "kernels/experts/experts.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"

namespace deepinfer {
namespace {

constexpr int kPlanThreads = 1024, kPlanWarps = kPlanThreads / 32;
static_assert(kPlanWarps == 32);  // one lane adds up one warp

// The choices of a batch in one sequence, token by token. Their count fits 32 bits as assignments are int32. Flat: rows
// follow each other, so that no index needs a division.
template <bool kIsFlat>
struct Choices {
  View<const int32_t, dim::tokens, dim::choices> expert;

  __device__ int32_t operator[](int i) const {
    if constexpr (kIsFlat) return expert.data[i];
    const int choices = static_cast<int>(expert.size[1]);
    return expert(i / choices, i % choices);
  }
};

// Where a choice stands among its token's, by ascending expert id; of equal ids the earlier choice is first.
__device__ int64_t rank_among(const int32_t* chosen, int64_t choices, int64_t c) {
  int64_t rank = 0;
  for (int64_t other = 0; other < choices; ++other)
    rank += chosen[other] < chosen[c] || (chosen[other] == chosen[c] && other < c);
  return rank;
}

__device__ int add_over_block(int mine, int (&of_warps)[kPlanWarps]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  mine = __reduce_add_sync(0xFFFFFFFFu, mine);
  if (lane == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  return __reduce_add_sync(0xFFFFFFFFu, of_warps[lane]);
}

// Block (e, s) places the choices of expert e among the s-th `slice` of the choices, a thread each at a time. First it
// counts by itself the choices of lower experts, which is where e begins, and e's own in the slices before. Every block
// reads all choices (from L2): for the batches of a step that is sooner done than a second kernel starts.
template <bool kIsFlat>
__global__ void __launch_bounds__(kPlanThreads, 2) plan_kernel(ExpertPlanParams p, int slice) {
  __shared__ int lower_of[kPlanWarps], before_of[kPlanWarps], own_of[2][kPlanWarps];  // of warps
  begin_overlapped();
  const Choices<kIsFlat> chosen{p.expert};
  const int expert = static_cast<int>(blockIdx.x), total = static_cast<int>(p.expert.num_elements());
  const int choices = static_cast<int>(p.expert.size[1]), thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32, first = static_cast<int>(blockIdx.y) * slice;
  int lower = 0, before = 0;
#pragma unroll 8
  for (int i = thread; i < total; i += kPlanThreads) {
    const int32_t e = chosen[i];
    lower += e < expert;
    before += e == expert && i < first;
  }
  lower = add_over_block(lower, lower_of), before = add_over_block(before, before_of);
  if (thread == 0 && first == 0) p.begin(expert) = lower;
  if (thread == 0 && first == 0 && expert == 0) p.begin(gridDim.x) = total;
  int place = lower + before;
  for (int begin = first, turn = 0; begin < min(first + slice, total); begin += kPlanThreads, turn ^= 1) {
    const int i = begin + thread;
    const bool is_mine = i < total && chosen[i] == expert;
    const unsigned votes = __ballot_sync(0xFFFFFFFFu, is_mine);
    if (lane == 0) own_of[turn][warp] = __popc(votes);
    __syncthreads();
    const int own = own_of[turn][lane];
    if (is_mine) {
      const int t = i / choices, c = i % choices;
      int at = place + __popc(votes & ((1u << lane) - 1));
      for (int w = 0; w < warp; ++w) at += own_of[turn][w];
      p.token(at) = t;
      p.assignment_weight(at) = p.weight(t, c);
      p.assignment(t, rank_among(p.expert.row(t), choices, c)) = at;
    }
    place += __reduce_add_sync(0xFFFFFFFFu, own);
  }
}

void expert_plan_cuda(const ExecutionContext& context, const ExpertPlanParams& p) {
  const bool is_flat = p.expert.stride[0] == p.expert.size[1];
  const auto kernel = is_flat ? plan_kernel<true> : plan_kernel<false>;
  const unsigned experts = num_blocks(p.begin.size[0] - 1, 1),
                 chunks = num_blocks(p.expert.num_elements(), kPlanThreads);
  const unsigned slices = std::clamp(2 * multiprocessor_count() / experts, 1u, std::max(chunks, 1u));
  const int slice = static_cast<int>(num_blocks(chunks, slices)) * kPlanThreads;
  launch_overlapped(context, {dim3(experts, slices), kPlanThreads}, kernel, p, std::max(slice, kPlanThreads));
  context.device->launched("expert_plan");
}

constexpr int kCombineThreads = 128;

// Neighbouring channels that one instruction loads or stores.
template <int kEach>
struct alignas(kEach * sizeof(bf16)) Channels {
  bf16 value[kEach];
};

template <int kEach>
__device__ void add_channels(float (&sum)[kEach], const Channels<kEach>& more) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum[i] += to_float(more.value[i]);
}

__device__ void store_channels(bf16* to, const float (&sum)[1]) { *to = to_bf16(sum[0]); }

// The intrinsic because the compiler stores the plain struct, and a plain uint4, in four parts here.
__device__ void store_channels(bf16* to, const float (&sum)[8]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = to_bf16(sum[2 * i]).bits | uint32_t{to_bf16(sum[2 * i + 1]).bits} << 16;
  __stcg(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
}

// A thread adds kEach channels of one token, assignments in ascending expert id; it asks for several rows at a time,
// so that their ways from memory overlap.
template <int kEach>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(ExpertCombineParams p) {
  begin_overlapped();
  using Some = Channels<kEach>;
  constexpr int kRows = 8;
  const int64_t t = blockIdx.x, d = kEach * (int64_t{blockIdx.y} * kCombineThreads + threadIdx.x);
  if (d >= p.out.size[1]) return;
  Some shared{};
  if (p.shared.data) shared = *reinterpret_cast<const Some*>(p.shared.row(t) + d);
  const int choices = static_cast<int>(p.assignment.size[1]);
  float sum[kEach] = {};
  for (int first = 0; first < choices; first += kRows) {
    Some rows[kRows];
#pragma unroll
    for (int c = 0; c < kRows; ++c)
      if (first + c < choices) rows[c] = *reinterpret_cast<const Some*>(p.y.row(p.assignment(t, first + c)) + d);
#pragma unroll
    for (int c = 0; c < kRows; ++c)
      if (first + c < choices) add_channels(sum, rows[c]);
  }
  if (p.shared.data) add_channels(sum, shared);
  store_channels(p.out.row(t) + d, sum);
}

// Whether every row begins at a multiple of 16 bytes; a view without data does not matter.
template <typename Rows>
bool is_aligned(const Rows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && (!rows.data || rows.stride[0] % 8 == 0);
}

template <int kEach>
void launch_combine(const ExecutionContext& context, const ExpertCombineParams& p) {
  const dim3 grid(num_blocks(p.out.size[0], 1), num_blocks(p.out.size[1], kEach * kCombineThreads));
  launch_overlapped(context, {grid, kCombineThreads}, combine_kernel<kEach>, p);
}

void expert_combine_cuda(const ExecutionContext& context, const ExpertCombineParams& p) {
  if (p.out.num_elements() == 0) return;
  const bool is_wide = p.out.size[1] % 8 == 0 && is_aligned(p.y) && is_aligned(p.shared) && is_aligned(p.out);
  if (is_wide) launch_combine<8>(context, p);
  else launch_combine<1>(context, p);
  context.device->launched("expert_combine");
}

}  // namespace

extern const Launch<ExpertPlanParams> kExpertPlanCuda = expert_plan_cuda;
extern const Launch<ExpertCombineParams> kExpertCombineCuda = expert_combine_cuda;

}  // namespace deepinfer
