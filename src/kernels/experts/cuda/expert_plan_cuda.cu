// SPDX-License-Identifier: MIT
#include "kernels/experts/experts.h"
#include "kernels/lanes/cuda/launch.cuh"

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

// Places the warp's choices [first, end) of one expert, tokens ascending, from `place` on.
template <bool kIsFlat>
__device__ void place_choices(const ExpertPlanParams& p, const Choices<kIsFlat>& chosen, int first, int end, int place) {
  const int expert = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const int choices = static_cast<int>(p.expert.size[1]);
  for (; first < end; first += 32) {
    const int i = first + lane;
    const bool is_mine = i < end && chosen[i] == expert;
    const unsigned votes = __ballot_sync(0xFFFFFFFFu, is_mine);
    if (is_mine) {
      const int t = i / choices, c = i % choices, at = place + __popc(votes & ((1u << lane) - 1));
      p.token(at) = t;
      p.assignment_weight(at) = p.weight(t, c);
      p.assignment(t, rank_among(p.expert.row(t), choices, c)) = at;
    }
    place += __popc(votes);
  }
}

// Block e plans expert e by itself: it counts the choices of lower experts, which is where e begins, and its own by
// warps, each of which has a range of the choices; then the warps that found any place them. Every block reads all
// choices (from L2): for the batches of a step that is sooner done than a second kernel starts.
template <bool kIsFlat>
__global__ void __launch_bounds__(kPlanThreads, 2) plan_kernel(ExpertPlanParams p) {
  const Choices<kIsFlat> chosen{p.expert};
  __shared__ int lower_of[kPlanWarps], own_of[kPlanWarps];
  const int expert = static_cast<int>(blockIdx.x), total = static_cast<int>(p.expert.num_elements());
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int range = (total + kPlanThreads - 1) / kPlanThreads * 32, first = min(warp * range, total);
  const int end = min(first + range, total);
  int lower = 0, own = 0;
#pragma unroll 8
  for (int i = first + lane; i < end; i += 32) {
    const int32_t e = chosen[i];
    lower += e < expert;
    own += e == expert;
  }
  lower = __reduce_add_sync(0xFFFFFFFFu, lower);
  own = __reduce_add_sync(0xFFFFFFFFu, own);
  if (lane == 0) {
    lower_of[warp] = lower;
    own_of[warp] = own;
  }
  __syncthreads();
  const int begin = __reduce_add_sync(0xFFFFFFFFu, lower_of[lane]);
  const int before = __reduce_add_sync(0xFFFFFFFFu, lane < warp ? own_of[lane] : 0);
  if (threadIdx.x == 0) p.begin(expert) = begin;
  if (threadIdx.x == 0 && expert == 0) p.begin(gridDim.x) = total;
  if (own > 0) place_choices(p, chosen, first, end, begin + before);
}

void expert_plan_cuda(const ExecutionContext& context, const ExpertPlanParams& p) {
  const bool is_flat = p.expert.stride[0] == p.expert.size[1];
  const auto kernel = is_flat ? plan_kernel<true> : plan_kernel<false>;
  kernel<<<num_blocks(p.begin.size[0] - 1, 1), kPlanThreads, 0, stream_of(context)>>>(p);
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
void launch_combine(cudaStream_t stream, const ExpertCombineParams& p) {
  const dim3 grid(num_blocks(p.out.size[0], 1), num_blocks(p.out.size[1], kEach * kCombineThreads));
  combine_kernel<kEach><<<grid, kCombineThreads, 0, stream>>>(p);
}

void expert_combine_cuda(const ExecutionContext& context, const ExpertCombineParams& p) {
  if (p.out.num_elements() == 0) return;
  const bool is_wide = p.out.size[1] % 8 == 0 && is_aligned(p.y) && is_aligned(p.shared) && is_aligned(p.out);
  if (is_wide) launch_combine<8>(stream_of(context), p);
  else launch_combine<1>(stream_of(context), p);
  context.device->launched("expert_combine");
}

}  // namespace

extern const Launch<ExpertPlanParams> kExpertPlanCuda = expert_plan_cuda;
extern const Launch<ExpertCombineParams> kExpertCombineCuda = expert_combine_cuda;

}  // namespace deepinfer
