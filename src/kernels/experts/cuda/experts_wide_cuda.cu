// SPDX-License-Identifier: MIT
// Experts on warpgroups, for more than a few rows each: the rows of every expert as groups of eight of their own, so that
// a tile never has rows of two experts.
#include "kernels/experts/cuda/expert_table.cuh"
#include "kernels/experts/cuda/experts_tensor.h"
#include "kernels/linear/cuda/panel_activations.cuh"
#include "kernels/linear/cuda/wide_rounds.cuh"

namespace deepinfer {
namespace {

// Where experts' rows stand in panels and tiles: what comes before each expert. Entry [experts] is the end.
struct ExpertPlaces {
  int32_t *groups, *row_tiles;
};

struct WideExperts {
  ExpertTable<kExpertsMax> table;
  ExpertPlaces places;
  const uint8_t* panels;  // of x or of the hidden channels
  uint8_t* hidden_panels;
  int64_t num_groups;  // at most: panels have room for so many
  int32_t segments;
  SegmentStore store;
  bool is_aligned;  // out, for eight bytes at a time
};

// One block.
__global__ void places_kernel(View<const int32_t, dim::experts> begin, ExpertPlaces places, int tile_rows) {
  __shared__ int32_t counts[2][kExpertsMax];
  wait_for_kernels_before();
  let_kernels_behind_begin();
  const int experts = static_cast<int>(begin.size[0]) - 1;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += static_cast<int>(blockDim.x)) {
    const int rows = begin(e + 1) - begin(e);
    counts[0][e] = (rows + 7) / 8, counts[1][e] = (rows + tile_rows - 1) / tile_rows;
  }
  __syncthreads();
  if (threadIdx.x >= 2) return;
  int32_t* out = threadIdx.x == 0 ? places.groups : places.row_tiles;
  int32_t sum = 0;
  for (int e = 0; e < experts; ++e) out[e] = sum, sum += counts[threadIdx.x][e];
  out[experts] = sum;
}

// The expert in whose part of `before` place i lies: before[e] <= i < before[e + 1].
__device__ inline int find_expert(const int32_t* before, int experts, int64_t i) {
  int low = 0, high = experts;  // before[low] <= i < before[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (before[middle] <= i ? low : high) = middle;
  }
  return low;
}

template <WeightKind kKind>
__global__ void __launch_bounds__(kPanelThreads)
    expert_panels_kernel(PanelActivations a, View<const int32_t, dim::experts> begin,
                         View<const int32_t, dim::assignments> token, const int32_t* groups) {
  wait_for_kernels_before();
  let_kernels_behind_begin();
  const int experts = static_cast<int>(begin.size[0]) - 1;
  if (static_cast<int>(blockIdx.x) >= groups[experts]) return;
  const int e = find_expert(groups, experts, blockIdx.x);
  const int64_t first = begin(e) - int64_t{8} * groups[e], end = begin(e + 1);
  make_panels<kKind>(a, [&](int64_t row) -> const bf16* {
    if (first + row >= end) return nullptr;
    return a.x + (token.data ? token(first + row) : first + row) * a.row_stride;
  });
}

struct ExpertTile {
  int32_t expert, out, row, num_rows;  // first output (channel) and row of the expert; rows of the expert from there on
};

template <typename W, bool kIsHidden>
__device__ int num_out_tiles(const WideExperts& a) {
  const int out = kIsHidden ? a.table.inner : a.table.hidden, each = (kIsHidden ? kWideOut / 2 : kWideOut) * W::kSharers;
  return (out + each - 1) / each;
}

template <typename W, bool kIsHidden>
__device__ ExpertTile place_tile(const WideExperts& a, int tile) {
  const int experts = static_cast<int>(a.table.begin.size[0]) - 1, out_tiles = num_out_tiles<W, kIsHidden>(a);
  const int e = find_expert(a.places.row_tiles, experts, tile / out_tiles);
  const int before = a.places.row_tiles[e], row_tiles = a.places.row_tiles[e + 1] - before;
  const int in_expert = tile - before * out_tiles, rank = W::kSharers > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int row = in_expert % row_tiles * W::kTokens;
  return {e, (in_expert / row_tiles * W::kSharers + rank) * (kIsHidden ? kWideOut / 2 : kWideOut), row,
          a.table.begin(e + 1) - a.table.begin(e) - row};
}

template <typename W, bool kIsHidden>
__device__ WideOperands operands_of(const WideExperts& a, const ExpertTile& t) {
  const DeviceMatrix m = kIsHidden ? a.table.w1(t.expert) : a.table.w2(t.expert), up = a.table.w3(t.expert);
  return {.codes = m.codes,
          .scales = m.scales,
          .codes_up = kIsHidden ? up.codes : nullptr,
          .scales_up = kIsHidden ? up.scales : nullptr,
          .in = m.in,
          .first_row = min(t.out, m.out - 1),
          .last_row = m.out - 1,
          .first_chunk = 0,
          .end_chunk = m.in / kChunkColumns,
          .x = a.panels + (a.places.groups[t.expert] + t.row / 8) * int64_t{kGroupBytes},
          .panel_stride = a.num_groups * kGroupBytes,
          .num_groups = min(W::kTokens, t.num_rows + 7) / 8};
}

// Eight hidden channels of a row, from `channel` on, into its panel.
template <WeightKind kKind>
__device__ void write_hidden(uint8_t* panels, int64_t num_groups, int64_t row, int channel, uint4 eight) {
  constexpr bool kIsFp4 = kKind == WeightKind::kFp4;
  if constexpr (kIsFp4) eight = in_fp4_order(eight);
  const auto put = [&](int i, uint32_t pair) {
    const int place = panel_place<kKind>(channel % 128 + (kIsFp4 ? i : 2 * i));
    const int64_t panel = channel / 128 * 2 + place / 64;
    *reinterpret_cast<uint32_t*>(panels + panel * num_groups * kGroupBytes + panel_byte(row, place % 64)) = pair;
  };
  put(0, eight.x), put(1, eight.y), put(2, eight.z), put(3, eight.w);
}

__device__ inline void wait_for_warpgroup() {
  if (threadIdx.x < 128) asm volatile("bar.sync 1, 128;" ::: "memory");
  else asm volatile("bar.sync 2, 128;" ::: "memory");
}

// A gate below its up, both bf16, for 32 channels of up to 128 rows. Padded: rows fall into different banks.
constexpr int kStageRows = 128, kStagePitch = 36;

// 32 channels of row r of the tile: gates times ups, rounded with one scale, to the panels of the second product. The
// loops stay loops: unrolled they would not fit the registers beside the sums.
template <WeightKind kKind>
__device__ void finish_hidden(const WideExperts& a, const ExpertTile& t, uint32_t* both, int r, int channel) {
  const float* weight = a.table.weight.data ? &a.table.weight(a.table.begin(t.expert) + t.row + r) : nullptr;
  float amax = 0;
#pragma unroll 1
  for (int v = 0; v < 8; ++v) {
    const uint4 four = *reinterpret_cast<const uint4*>(both + 4 * v);
    const auto hidden = [&](uint32_t pair) {
      const float2 x = widen_pair(pair);
      return swiglu_inline(x.x, x.y, a.table.swiglu_limit, weight);
    };
    const uint2 made = {round_pair(hidden(four.x), hidden(four.y)), round_pair(hidden(four.z), hidden(four.w))};
    amax = fmaxf(amax, fmaxf(largest_of_pair(made.x), largest_of_pair(made.y)));
    *reinterpret_cast<uint2*>(both + 2 * v) = made;  // over pairs that have been read
  }
  const int64_t row = int64_t{8} * a.places.groups[t.expert] + t.row + r;
#pragma unroll 1
  for (int v = 0; v < 4; ++v)
    write_hidden<kKind>(a.hidden_panels, a.num_groups, row, channel + 8 * v,
                        round_to_e4m3(*reinterpret_cast<const uint4*>(both + 4 * v), amax));
}

// A warpgroup's 32 channels. Sums are turned in shared memory, so that a thread has all channels of a row.
template <typename W, int kTokens>
__device__ void emit_hidden(const WideExperts& a, const ExpertTile& t, uint32_t* stage, const float (&sums)[kTokens / 2]) {
  constexpr int kRows = kTokens < kStageRows ? kTokens : kStageRows;
  const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
  const int channel = t.out + static_cast<int>(threadIdx.x) / 128 * 32;
#pragma unroll
  for (int first = 0; first < kTokens; first += kRows) {
    wait_for_warpgroup();  // the stage has been read
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const float* s = sums + first / 2 + i / 2 * 4 + i % 2;
      stage[(i / 2 * 8 + 2 * c + i % 2) * kStagePitch + 8 * warp + g] = round_pair(s[0], s[2]);
    }
    wait_for_warpgroup();
    if (const int r = first + thread; thread < kRows && r < t.num_rows && channel < a.table.inner)
      finish_hidden<W::kKind>(a, t, stage + thread * kStagePitch, r, channel);
  }
}

template <int kTokens>
__device__ void emit_out(const WideExperts& a, const ExpertTile& t, const float (&sums)[kTokens / 2]) {
  const int out = t.out + static_cast<int>(threadIdx.x) / 32 * 16;
  const int64_t first = a.table.begin(t.expert) + t.row;
  emit_fours<kTokens>(sums, [](int) { return true; }, [&](int token, int o, uint2 four) {
    if (token >= t.num_rows || out + o >= a.table.hidden) return;
    bf16* to = &a.table.out(first + token, out + o);
    if (a.is_aligned) *reinterpret_cast<uint2*>(to) = four;
    else
      for (int i = 0; i < 4; ++i)
        to[i] = {static_cast<uint16_t>((i < 2 ? four.x : four.y) >> (i % 2 * 16))};
  });
}

template <typename W, bool kIsHidden>
struct ExpertShared : W::Shared {
  alignas(16) uint32_t stage[kIsHidden ? 2 : 1][kIsHidden ? kStageRows * kStagePitch : 4];
};

template <typename W, bool kIsHidden>
__global__ void __launch_bounds__(kWideThreads, 1) wide_experts_kernel(const __grid_constant__ WideExperts a) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ uint8_t raw[];
  auto& s = wide_shared<ExpertShared<W, kIsHidden>>(raw);
  init_wide<W>(s);
  if constexpr (W::kSharers > 1) wait_for_cluster();
  else __syncthreads();
  wait_for_kernels_before();
  let_kernels_behind_begin();
  const int experts = static_cast<int>(a.table.begin.size[0]) - 1;
  const int num_tiles = a.places.row_tiles[experts] * num_out_tiles<W, kIsHidden>(a);
  run_tiles<W>(
      s, static_cast<int>(blockIdx.x) / W::kSharers, num_tiles, static_cast<int>(gridDim.x) / W::kSharers, false,
      [&](int tile) { return operands_of<W, kIsHidden>(a, place_tile<W, kIsHidden>(a, tile)); },
      [&](int tile, RingPlace& x_at, RingPlace& w_at, WideRegisters<W>& registers) {
        const ExpertTile t = place_tile<W, kIsHidden>(a, tile);
        const int chunks = (kIsHidden ? a.table.hidden : a.table.inner) / kChunkColumns;
        with_tokens<W>((t.num_rows + 7) / 8, [&](auto tokens) {
          constexpr int kTokens = decltype(tokens)::value;
          multiply_segments<W, kTokens>(s, x_at, w_at, chunks, a.segments, a.store, registers);
          auto& sums = registers.template first<kTokens>();
          if constexpr (kIsHidden) emit_hidden<W, kTokens>(a, t, s.stage[threadIdx.x / 128], sums);
          else emit_out<kTokens>(a, t, sums);
        });
      });
  if constexpr (W::kSharers > 1) wait_for_cluster();  // no block leaves while others bring panels to it
#endif
}

template <typename W>
void launch_experts(const ExecutionContext& context, const ExpertsParams& p, WideExperts& a) {
  constexpr WeightKind kKind = W::kKind;
  const int hidden = a.table.hidden, inner = a.table.inner;
  const unsigned blocks = multiprocessor_count() / W::kSharers * W::kSharers;
  launch_overlapped(context, {dim3(1), 256}, places_kernel, p.begin, a.places, W::kTokens);
  auto* panels = context.scratch->take<uint8_t>(a.num_groups * 16 * hidden);
  const PanelActivations x{.x = p.x.data,
                           .row_stride = p.x.stride[0],
                           .num_rows = p.x.size[0],
                           .columns = hidden,
                           .num_groups = a.num_groups,
                           .round = true,
                           .is_aligned = reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0,
                           .out = panels};
  launch_overlapped(context, {dim3(static_cast<unsigned>(a.num_groups), num_blocks(hidden, kPanelSpan)), kPanelThreads},
                    expert_panels_kernel<kKind>, x, p.begin, p.token, a.places.groups);
  a.hidden_panels = context.scratch->take<uint8_t>(a.num_groups * 16 * inner);
  a.store.data = p.experts.size() == 1 ? context.scratch->take<float4>(int64_t{blocks} * 32 * kWideConsumers) : nullptr;
  a.panels = panels, a.segments = num_expert_segments(p.experts.size(), 2 * inner, hidden);
  launch_overlapped(context, {dim3(blocks), kWideThreads, wide_shared_bytes<ExpertShared<W, true>>(), W::kSharers},
                    wide_experts_kernel<W, true>, a);
  a.panels = a.hidden_panels, a.segments = num_expert_segments(p.experts.size(), hidden, inner);
  launch_overlapped(context, {dim3(blocks), kWideThreads, wide_shared_bytes<ExpertShared<W, false>>(), W::kSharers},
                    wide_experts_kernel<W, false>, a);
}

template <WeightKind kKind>
void launch_kind(const ExecutionContext& context, const ExpertsParams& p, WideExperts& a) {
  constexpr int64_t kFewRows = 48;  // of an expert, on average
  constexpr bool kIsFp4 = kKind == WeightKind::kFp4;
  if (p.out.size[0] > kFewRows * static_cast<int64_t>(p.experts.size()))
    launch_experts<Wide<kKind, 256, kIsFp4 ? 5 : 4, 3, 2>>(context, p, a);
  else launch_experts<Wide<kKind, 64, 7, kIsFp4 ? 12 : 7, 1>>(context, p, a);
}

}  // namespace

void experts_wide(const ExecutionContext& context, const ExpertsParams& p) {
  const int64_t experts = static_cast<int64_t>(p.experts.size()), assignments = p.out.size[0];
  WideExperts a{};
  const bool is_fp4 = fill_expert_table(p, a.table);
  a.num_groups = (assignments + 7 * std::min(experts, assignments)) / 8;
  a.places = {context.scratch->take<int32_t>(experts + 1), context.scratch->take<int32_t>(experts + 1)};
  a.is_aligned = reinterpret_cast<uintptr_t>(p.out.data) % 8 == 0 && p.out.stride[0] % 4 == 0;
  if (is_fp4) launch_kind<WeightKind::kFp4>(context, p, a);
  else launch_kind<WeightKind::kFp8>(context, p, a);
}

}  // namespace deepinfer
