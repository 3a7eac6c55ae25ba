// SPDX-License-Identifier: MIT
// Experts on warpgroups, for more than a few rows each: the rows of every expert as groups of eight of their own, so that
// a tile never has rows of two experts.
#include "kernels/experts/cuda/experts_tensor.h"
#include "kernels/experts/cuda/hidden_rows.cuh"
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

// Rows whose hidden channels are finished at a time.
template <typename W>
constexpr int stage_rows() {
  return std::min(W::kTokens, W::kTokens % 128 == 0 ? 128 : W::kTokens);
}

template <typename W, bool kIsHidden>
struct ExpertShared : W::Shared {
  alignas(16) uint32_t stage[kIsHidden ? 2 : 1][kIsHidden ? stage_rows<W>() * kStagePitch : 4];
};

template <typename W, bool kIsHidden>
__global__ void __launch_bounds__(kWideThreads, 1) wide_experts_kernel(const __grid_constant__ WideExperts a) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ uint8_t raw[];
  auto& s = aligned_shared<ExpertShared<W, kIsHidden>>(raw);
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
          if constexpr (kIsHidden)
            emit_hidden<W::kKind, std::min(kTokens, stage_rows<W>()), kTokens>(
                a.table, {t.expert, t.row, t.num_rows, a.places.groups[t.expert]}, a.hidden_panels, a.num_groups,
                s.stage[threadIdx.x / 128], t.out + static_cast<int>(threadIdx.x) / 128 * 32, [](int) { return true; }, sums);
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
  launch_overlapped(context, {dim3(blocks), kWideThreads, aligned_shared_bytes<ExpertShared<W, true>>(), W::kSharers},
                    wide_experts_kernel<W, true>, a);
  a.panels = a.hidden_panels, a.segments = num_expert_segments(p.experts.size(), hidden, inner);
  launch_overlapped(context, {dim3(blocks), kWideThreads, aligned_shared_bytes<ExpertShared<W, false>>(), W::kSharers},
                    wide_experts_kernel<W, false>, a);
}

template <WeightKind kKind>
void launch_kind(const ExecutionContext& context, const ExpertsParams& p, WideExperts& a) {
  constexpr bool kIsFp4 = kKind == WeightKind::kFp4;
  if constexpr (!kIsFp4)  // the shared expert
    if (p.experts.size() == 1 && p.out.size[0] <= 2 * 144) return launch_experts<Wide<kKind, 144, 5, 4, 2>>(context, p, a);
  launch_experts<Wide<kKind, 256, kIsFp4 ? 5 : 4, 3, 2>>(context, p, a);
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
