// SPDX-License-Identifier: MIT
// Experts of a few rows each.
#include "kernels/experts/cuda/expert_table.cuh"
#include "kernels/experts/cuda/experts_tensor.h"
#include "kernels/linear/cuda/narrow_tile.cuh"
#include "kernels/linear/cuda/overlapped_launch.cuh"

namespace deepinfer {
namespace {

constexpr int kMostWarps = 16, kSlots = 4;

template <size_t kMax>
struct NarrowExperts {
  ExpertTable<kMax> table;
  const bf16* x;  // of a token
  int64_t row_stride;
  bf16* h;       // [assignments, inner], ready to be staged
  int32_t capacity, segments;  // tokens at one time
  NarrowStaging staging;  // of x
};

// The n-th expert that has rows, or -1. A whole warp calls.
__device__ inline int nth_expert(const View<const int32_t, dim::experts>& begin, int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32, experts = static_cast<int>(begin.size[0]) - 1;
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane;
    unsigned votes = __ballot_sync(0xFFFFFFFFu, e < experts && begin(e) < begin(e + 1));
    const int found = __popc(votes);
    if (n < found) {
      for (; n > 0; --n) votes &= votes - 1;
      return first + __ffs(static_cast<int>(votes)) - 1;
    }
    n -= found;
  }
  return -1;
}

// A warp has eight hidden channels: their gates in rows g, their ups in rows g + 8.
template <WeightKind kKind, size_t kMax>
__device__ void make_hidden(const NarrowExperts<kMax>& a, uint8_t* shared, int e, int64_t first, int num_rows) {
  const ExpertTable<kMax>& table = a.table;
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32,
            g = static_cast<int>(threadIdx.x) % 32 / 4, c = static_cast<int>(threadIdx.x) % 4;
  const int tiles = warps / a.segments, tile = warp / a.segments, channels = 8 * tiles;
  const int channel = static_cast<int>(blockIdx.x) * channels, in = table.hidden;
  uint8_t* tokens = shared + warps * (kSlots * kNarrowChunkBytes);
  Narrow<kKind, kSlots> work(narrow_rows<kKind>(table.w1(e), channel + 8 * tile + g, table.w3(e), channel + 8 * tile + g), shared,
                     in, warp % a.segments, a.segments);
  stage_narrow<kKind>(tokens, num_rows, in, a.staging, [&](int t) {
    return a.x + (table.token.data ? table.token(first + t) : first + t) * a.row_stride;
  });
  __syncthreads();
  float sums[4];
  work.multiply(narrow_x<kKind>(tokens, num_rows, in), sums);
  __syncthreads();  // tokens have been read
  float* parts = reinterpret_cast<float*>(tokens);
  add_segments(parts, a.segments, sums);
  __syncthreads();
  auto* hidden = parts;  // [num_rows, channels]
  if (warp % a.segments == 0)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      if (const int r = 2 * c + j; r < num_rows)
        hidden[r * channels + 8 * tile + g] =
            to_float(to_bf16(swiglu_inline(to_float(to_bf16(sums[j])), to_float(to_bf16(sums[2 + j])), table.swiglu_limit,
                                           table.weight.data ? &table.weight(first + r) : nullptr)));
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % 32, blocks = channels / 32;
  for (int piece = warp; piece < num_rows * blocks; piece += warps) {
    const int r = piece / blocks, at = piece % blocks * 32 + column;
    const int place = kKind == WeightKind::kFp4 ? fp4_place(column) : column;
    a.h[(first + r) * table.inner + channel + at - column + place] =
        decode(RowFormat::kFp8Block32, encode(RowFormat::kFp8Block32, hidden[r * channels + at]));
  }
}

template <WeightKind kKind, size_t kMax>
__device__ void make_out(const NarrowExperts<kMax>& a, uint8_t* shared, int e, int64_t first, int num_rows, bool waits) {
  const ExpertTable<kMax>& table = a.table;
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32,
            g = static_cast<int>(threadIdx.x) % 32 / 4, c = static_cast<int>(threadIdx.x) % 4;
  const int out = (static_cast<int>(blockIdx.x) * (warps / a.segments) + warp / a.segments) * 16 + g;
  const int in = table.inner, last = table.hidden - 1;
  uint8_t* tokens = shared + warps * (kSlots * kNarrowChunkBytes);
  const DeviceMatrix w2 = table.w2(e);
  Narrow<kKind, kSlots> work(narrow_rows<kKind>(w2, min(out, last), w2, min(out + 8, last)), shared, in, warp % a.segments,
                     a.segments);
  if (waits) wait_for_kernels_before();
  stage_narrow<kKind>(tokens, num_rows, in, {true, false, true}, [&](int t) { return a.h + (first + t) * in; });
  __syncthreads();
  float sums[4];
  work.multiply(narrow_x<kKind>(tokens, num_rows, in), sums);
  __syncthreads();
  add_segments(reinterpret_cast<float*>(tokens), a.segments, sums);
  if (warp % a.segments != 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (const int o = out + i / 2 * 8, r = 2 * c + i % 2; o <= last && r < num_rows)
      table.out(first + r, o) = to_bf16(sums[i]);
}

// blockIdx: x tile of channels or outputs, y place among the experts that have rows.
template <WeightKind kKind, bool kIsHidden, size_t kMax>
__global__ void __launch_bounds__(32 * kMostWarps) narrow_experts_kernel(const __grid_constant__ NarrowExperts<kMax> a) {
  extern __shared__ uint4 memory[];
  uint8_t* shared = reinterpret_cast<uint8_t*>(memory);
  // The kernel of the hidden channels lets the other begin once the plan stands; what it waits for is h.
  if constexpr (kIsHidden) wait_for_kernels_before();
  let_kernels_behind_begin();
  const int e = nth_expert(a.table.begin, static_cast<int>(blockIdx.y));
  bool waits = !kIsHidden;
  if (e >= 0) {
    const int64_t end = a.table.begin(e + 1);
    for (int64_t first = a.table.begin(e); first < end; first += a.capacity) {
      const int num_rows = static_cast<int>(min(int64_t{a.capacity}, end - first));
      if constexpr (kIsHidden) make_hidden<kKind>(a, shared, e, first, num_rows);
      else make_out<kKind>(a, shared, e, first, num_rows, waits);
      waits = false;
      __syncthreads();
    }
  }
  if (waits) wait_for_kernels_before();
}

template <WeightKind kKind, size_t kMax>
void launch_experts(const ExecutionContext& context, NarrowExperts<kMax>& a, unsigned experts) {
  const auto launch = [&](auto kernel, int64_t items, int per_tile, int in, int segments) {
    const int tiles = segments == 1 ? 8 : 4, threads = 32 * tiles * segments;
    const int64_t tokens = std::max<int64_t>(a.capacity * narrow_pitch(in), 16 * threads);
    a.segments = segments;
    launch_overlapped(context,
                      {dim3(num_blocks(items, per_tile * tiles), experts), static_cast<unsigned>(threads),
                       threads / 32 * (kSlots * kNarrowChunkBytes) + tokens},
                      kernel, a);
  };
  const int hidden = a.table.hidden, inner = a.table.inner;
  launch(narrow_experts_kernel<kKind, true, kMax>, inner, 8, hidden, num_expert_segments(kMax, 2 * inner, hidden));
  launch(narrow_experts_kernel<kKind, false, kMax>, hidden, 16, inner, num_expert_segments(kMax, hidden, inner));
}

template <size_t kMax>
void run_experts(const ExecutionContext& context, const ExpertsParams& p) {
  constexpr int64_t kRoundsAlone = 16384, kTokensBytes = 100 << 10;
  const int64_t tokens = p.x.size[0], assignments = p.out.size[0];
  NarrowExperts<kMax> a{};
  const bool is_fp4 = fill_expert_table(p, a.table);
  a.x = p.x.data, a.row_stride = p.x.stride[0], a.staging.round = true;
  a.staging.is_aligned = reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0;
  const int64_t widest = narrow_pitch(std::max(a.table.hidden, a.table.inner));
  a.capacity = static_cast<int32_t>(std::clamp<int64_t>(std::min(tokens, kTokensBytes / widest), 1, kNarrowTokens));
  a.h = context.scratch->take<bf16>(assignments * a.table.inner);
  if (a.capacity * a.table.hidden > kRoundsAlone) {
    bf16* x = context.scratch->take<bf16>(tokens * a.table.hidden);
    launch_rounded_rows(context, {a.x, a.row_stride, a.table.hidden, x, a.staging.is_aligned, is_fp4}, tokens);
    a.x = x, a.row_stride = a.table.hidden, a.staging = {true, false, true};
  }
  const unsigned experts = static_cast<unsigned>(std::min<int64_t>(static_cast<int64_t>(p.experts.size()), assignments));
  if (is_fp4) launch_experts<WeightKind::kFp4>(context, a, experts);
  else launch_experts<WeightKind::kFp8>(context, a, experts);
}

}  // namespace

void experts_narrow(const ExecutionContext& context, const ExpertsParams& p) {
  if (p.experts.size() == 1) run_experts<1>(context, p);
  else run_experts<kExpertsMax>(context, p);
}

}  // namespace deepinfer
