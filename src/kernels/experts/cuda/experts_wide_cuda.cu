// SPDX-License-Identifier: MIT
// Experts on warpgroups, for more than a few rows each: the rows of every expert as groups of eight of their own, so that
// a tile never has rows of two experts.
#include "kernels/experts/cuda/experts_tensor.h"
#include "kernels/experts/cuda/hidden_rows.cuh"
#include "kernels/linear/cuda/wide_rounds.cuh"

namespace deepinfer {
namespace {

struct WideExperts {
  ExpertTable<kExpertsMax> table;
  const uint8_t* panels;
  uint8_t* hidden_panels;
  int64_t num_groups;  // at most: panels have room for so many
  uint32_t* hidden_done;  // [experts]: warpgroups that have written all their hidden channels of a tile
  int32_t segments[2];    // of the first and the second product
  SegmentStore store;
  SegmentParts parts[2];
  int32_t out_tiles_early;  // tiles of the second product that are done while one of the first is
  bool is_aligned;  // out, for eight bytes at a time
};

template <WeightKind kKind>
__global__ void __launch_bounds__(kPanelThreads)
    expert_panels_kernel(PanelActivations a, View<const int32_t, dim::experts> begin, View<const int32_t, dim::assignments> token) {
  wait_for_kernels_before();
  let_kernels_behind_begin();  // they read the plan at once
  const ExpertPlace place = find_place(begin, static_cast<int>(blockIdx.x), kGroupTokens);
  if (place.expert < 0) return;
  const int64_t first = begin(place.expert) + place.row - int64_t{blockIdx.x} * kGroupTokens;
  make_panels<kKind>(a, [&](int64_t row) -> const bf16* {
    if (row - int64_t{blockIdx.x} * kGroupTokens >= place.num_rows) return nullptr;
    return a.x + (token.data ? token(first + row) : first + row) * a.row_stride;
  });
}

struct ExpertTile {
  int32_t expert, out, row, num_rows;  // first output (channel) and row of the expert; rows of the expert from there on
  int32_t first_group, row_tiles;      // of the expert
};

template <typename W, bool kIsHidden>
__device__ int num_out_tiles(const WideExperts& a) {
  const int out = kIsHidden ? a.table.inner : a.table.hidden, each = (kIsHidden ? kWideOut / 2 : kWideOut) * W::kSharers;
  return (out + each - 1) / each;
}

// Tiles of the same outputs follow each other. A whole warp calls.
template <typename W, bool kIsHidden>
__device__ ExpertTile place_tile(const WideExperts& a, int tile) {
  const int out_tiles = num_out_tiles<W, kIsHidden>(a), rank = W::kSharers > 1 ? static_cast<int>(cluster_rank()) : 0;
  const ExpertPlace place = find_place(a.table.begin, tile / out_tiles, W::kTokens);
  const int rows = place.row + place.num_rows, row_tiles = (rows + W::kTokens - 1) / W::kTokens;
  const int in_expert = tile - (tile / out_tiles - place.row / W::kTokens) * out_tiles, row = in_expert % row_tiles * W::kTokens;
  return {place.expert, (in_expert / row_tiles * W::kSharers + rank) * (kIsHidden ? kWideOut / 2 : kWideOut), row, rows - row,
          place.first_group, row_tiles};
}

// The row tiles of all experts. A whole warp calls.
[[maybe_unused]] __device__ inline int num_row_tiles(const View<const int32_t, dim::experts>& begin, int tile_rows) {
  int tiles = 0;
  for (int e = static_cast<int>(threadIdx.x) % 32; e + 1 < begin.size[0]; e += 32) tiles += (begin(e + 1) - begin(e) + tile_rows - 1) / tile_rows;
  return __reduce_add_sync(0xFFFFFFFFu, tiles);
}

// Segments [segment, end) of a tile; hidden_parts: blocks that share a tile of the first product.
template <typename W, bool kIsHidden>
__device__ WideOperands operands_of(const WideExperts& a, const ExpertTile& t, int segment, int end, int hidden_parts) {
  const DeviceMatrix m = kIsHidden ? a.table.w1(t.expert) : a.table.w2(t.expert), up = a.table.w3(t.expert);
  const int units = m.in / (2 * kChunkColumns), segments = a.segments[kIsHidden ? 0 : 1];
  return {.codes = m.codes,
          .scales = m.scales,
          .codes_up = kIsHidden ? up.codes : nullptr,
          .scales_up = kIsHidden ? up.scales : nullptr,
          .in = m.in,
          .first_row = min(t.out, m.out - 1),
          .last_row = m.out - 1,
          .first_chunk = 2 * (segment * units / segments),
          .end_chunk = 2 * (end * units / segments),
          .x = (kIsHidden ? a.panels : a.hidden_panels) + (t.first_group + t.row / 8) * int64_t{kGroupBytes},
          .panel_stride = a.num_groups * kGroupBytes,
          .num_groups = min(W::kTokens, t.num_rows + 7) / 8,
          .ready = kIsHidden ? nullptr : a.hidden_done + t.expert,
          .ready_count = static_cast<uint32_t>(2 * W::kSharers * t.row_tiles * num_out_tiles<W, true>(a) * hidden_parts)};
}

// first_row(eight): of the tile, negative if not to be written.
template <int kTokens, typename FirstRow>
__device__ void emit_out(const WideExperts& a, const ExpertTile& t, const FirstRow& first_row, const float (&sums)[kTokens / 2]) {
  const int out = t.out + static_cast<int>(threadIdx.x) / 32 * 16;
  const int64_t first = a.table.begin(t.expert) + t.row;
  emit_fours<kTokens>(sums, [&](int eight) { return first_row(eight) >= 0; }, [&](int token, int o, uint2 four) {
    const int row = first_row(token / 8) + token % 8;
    if (row >= t.num_rows || out + o >= a.table.hidden) return;
    bf16* to = &a.table.out(first + row, out + o);
    if (a.is_aligned) *reinterpret_cast<uint2*>(to) = four;
    else
      for (int i = 0; i < 4; ++i)
        to[i] = {static_cast<uint16_t>((i < 2 ? four.x : four.y) >> (i % 2 * 16))};
  });
}

// Rows whose hidden channels are finished at a time.
template <typename W>
constexpr int stage_rows() {
  return W::kTokens <= 160 ? W::kTokens : W::kTokens == 288 ? 96 : W::kTokens / 2;
}

template <typename W>
struct ExpertShared : W::Shared {
  alignas(16) uint32_t stage[2][stage_rows<W>() * kStagePitch];
};

// The warpgroup's sums of kTokens tokens to the hidden channels or to the output.
template <typename W, bool kIsHidden, int kTokens, typename FirstRow>
__device__ void emit_tile(const WideExperts& a, ExpertShared<W>& s, const ExpertTile& t, const FirstRow& first_row,
                          const float (&sums)[kTokens / 2]) {
  if constexpr (kIsHidden)
    emit_hidden<W::kKind, std::min(kTokens, stage_rows<W>()), kTokens>(
        a.table, {t.expert, t.row, t.num_rows, t.first_group}, a.hidden_panels, a.num_groups, s.stage[threadIdx.x / 128],
        t.out + static_cast<int>(threadIdx.x) / 128 * 32, first_row, sums);
  else emit_out<kTokens>(a, t, first_row, sums);
}

// What follows the sums of a tile, or of a segment of it.
template <typename W, Segments kSegments, bool kIsHidden, int kTokens>
__device__ void finish_tile(const WideExperts& a, ExpertShared<W>& s, int tile, int segment, const ExpertTile& t, int num_groups,
                            const float (&sums)[kTokens / 2]) {
  if constexpr (kSegments == Segments::kInMemory) {
    const SegmentParts& parts = a.parts[kIsHidden ? 0 : 1];
    const int of_block = tile * W::kSharers + (W::kSharers > 1 ? static_cast<int>(cluster_rank()) : 0);
    put_segment<kTokens>(parts, of_block, segment, num_groups, sums);
    add_parts(parts, of_block, segment, num_groups, [&](int first, const float(&four)[16]) {
      emit_tile<W, kIsHidden, 32>(a, s, t, [&](int i) {
        const int eight = first + i * parts.segments;
        return eight < num_groups ? 8 * eight : -8;
      }, four);
    });
  } else {
    emit_tile<W, kIsHidden, kTokens>(a, s, t, [](int eight) { return 8 * eight; }, sums);
  }
  if constexpr (kIsHidden) {
    asm volatile("fence.proxy.async;" ::: "memory");  // bulk copies read what was written
    count_warpgroup(a.hidden_done + t.expert);
  }
}

// A block's order of tiles: its share of the first product's, then of the second's, which wait for the hidden channels of
// their expert. Clusters that have a tile less of the first product get some more of the second's first ones.
struct ExpertUnits {
  int hidden, out, early, cluster, clusters;
  [[maybe_unused]] __device__ int at(int i) const {
    const int mine = cluster < hidden ? (hidden - cluster + clusters - 1) / clusters : 0;
    if (i < mine) return cluster + i * clusters;
    const int busy = hidden % clusters, idle = busy == 0 ? 0 : clusters - busy;
    const bool is_idle = busy != 0 && cluster >= busy;
    const int first = cluster >= busy ? cluster - busy : cluster + clusters - busy;  // idle ones in front
    int n = i - mine, unit;
    if (is_idle && n < early) unit = n * idle + first;
    else unit = early * idle + first + (n - (is_idle ? early : 0)) * clusters;
    return unit < out ? hidden + unit : -1;
  }
};

template <typename W, Segments kSegments>
__global__ void __launch_bounds__(kWideThreads, 1) wide_experts_kernel(const __grid_constant__ WideExperts a) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ uint8_t raw[];
  auto& s = aligned_shared<ExpertShared<W>>(raw);
  init_wide<W>(s);
  if constexpr (W::kSharers > 1) wait_for_cluster();
  else __syncthreads();
  let_kernels_behind_begin();
  const int row_tiles = num_row_tiles(a.table.begin, W::kTokens), clusters = static_cast<int>(gridDim.x) / W::kSharers;
  const bool splits = kSegments == Segments::kInMemory;
  const int parts[2] = {splits ? a.segments[0] : 1, splits ? a.segments[1] : 1};
  const ExpertUnits units{row_tiles * num_out_tiles<W, true>(a) * parts[0], row_tiles * num_out_tiles<W, false>(a) * parts[1],
                          a.out_tiles_early, static_cast<int>(blockIdx.x) / W::kSharers, clusters};
  const auto with_unit = [&](int u, const auto& call) {  // call(whether it is of the first product, tile, segments of it)
    const bool is_hidden = u < units.hidden;
    const int of = is_hidden ? u : u - units.hidden, count = parts[is_hidden ? 0 : 1], segment = of % count;
    const int end = splits ? segment + 1 : a.segments[is_hidden ? 0 : 1];
    const ExpertTile t = is_hidden ? place_tile<W, true>(a, of / count) : place_tile<W, false>(a, of / count);
    const WideOperands o = is_hidden ? operands_of<W, true>(a, t, segment, end, 0) : operands_of<W, false>(a, t, segment, end, parts[0]);
    return call(is_hidden, of / count, segment, t, o);
  };
  run_tiles<W>(
      s, [&](int i) { return units.at(i); },
      [&](int u) {
        return with_unit(u, [](bool, int, int, const ExpertTile&, const WideOperands& o) { return o; });
      },
      [&](int u, RingPlace& x_at, RingPlace& w_at, WideRegisters<W>& registers) {
        with_unit(u, [&](bool is_hidden, int tile, int segment, const ExpertTile& t, const WideOperands& o) {
          with_tokens<W>(o.num_groups, [&](auto tokens) {
            constexpr int kTokens = decltype(tokens)::value;
            if constexpr (kSegments == Segments::kInMemory)
              multiply_wide<W, kTokens>(s, x_at, w_at, o.end_chunk - o.first_chunk, registers);
            else multiply_segments<W, kTokens>(s, x_at, w_at, o.end_chunk, a.segments[is_hidden ? 0 : 1], a.store, registers);
            auto& sums = registers.template first<kTokens>();
            if (is_hidden) finish_tile<W, kSegments, true, kTokens>(a, s, tile, segment, t, o.num_groups, sums);
            else finish_tile<W, kSegments, false, kTokens>(a, s, tile, segment, t, o.num_groups, sums);
          });
        });
      });
  if constexpr (W::kSharers > 1) wait_for_cluster();  // no block leaves while others bring panels to it
#endif
}

template <typename W, Segments kSegments>
void launch_experts(const ExecutionContext& context, const ExpertsParams& p, WideExperts& a) {
  constexpr WeightKind kKind = W::kKind;
  const int64_t experts = static_cast<int64_t>(p.experts.size()), hidden = a.table.hidden, inner = a.table.inner;
  const unsigned blocks = multiprocessor_count() / W::kSharers * W::kSharers;
  unsigned counters = static_cast<unsigned>(experts);
  uint32_t tiles[2] = {};  // of a block, with an expert of its own
  if (kSegments == Segments::kInMemory) {
    const unsigned row_tiles = num_blocks(p.out.size[0], W::kTokens);
    tiles[0] = row_tiles * num_blocks(2 * inner, kWideOut * W::kSharers) * W::kSharers;
    tiles[1] = row_tiles * num_blocks(hidden, kWideOut * W::kSharers) * W::kSharers;
    counters += 2 * (tiles[0] + tiles[1]);
  } else if (experts == 1) {
    a.store.data = context.scratch->take<float4>(blocks * kStoreEights * kWideConsumers);
  }
  a.hidden_done = context.scratch->take<uint32_t>(counters);
  for (int i = 0; i < 2 && kSegments == Segments::kInMemory; ++i)
    a.parts[i] = {context.scratch->take<float4>(int64_t{tiles[i]} * a.segments[i] * (W::kTokens / 8) * kWideConsumers),
                  a.hidden_done + experts + (i == 0 ? 0 : 2 * tiles[0]), a.segments[i], W::kTokens / 8};
  auto* panels = context.scratch->take<uint8_t>(a.num_groups * 16 * hidden);
  const PanelActivations x{.x = p.x.data,
                           .row_stride = p.x.stride[0],
                           .num_rows = p.x.size[0],
                           .columns = static_cast<int32_t>(hidden),
                           .num_groups = a.num_groups,
                           .round = true,
                           .is_aligned = reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0,
                           .out = panels,
                           .counters = a.hidden_done,
                           .num_counters = static_cast<int32_t>(counters)};
  launch_overlapped(context, {dim3(static_cast<unsigned>(a.num_groups), num_blocks(hidden, kPanelSpan)), kPanelThreads},
                    expert_panels_kernel<kKind>, x, p.begin, p.token);
  a.panels = panels;
  a.hidden_panels = context.scratch->take<uint8_t>(a.num_groups * 16 * inner);
  a.out_tiles_early = experts == 1 ? 0 : static_cast<int32_t>(hidden / inner);  // as many columns
  launch_overlapped(context, {dim3(blocks), kWideThreads, aligned_shared_bytes<ExpertShared<W>>(), W::kSharers},
                    wide_experts_kernel<W, kSegments>, a);
}

// With segments of an expert of its own in different blocks where there are few tiles.
template <typename W>
void launch_tiles(const ExecutionContext& context, const ExpertsParams& p, WideExperts& a) {
  if constexpr (W::kKind == WeightKind::kFp8) {  // the shared expert
    const int64_t rows = num_blocks(p.out.size[0], W::kTokens);
    if (p.experts.size() == 1 && splits_fill(rows * num_blocks(2 * a.table.inner, kWideOut), a.segments[0]) &&
        splits_fill(rows * num_blocks(a.table.hidden, kWideOut), a.segments[1]))
      return launch_experts<W, Segments::kInMemory>(context, p, a);
  }
  launch_experts<W, Segments::kInTurn>(context, p, a);
}

template <WeightKind kKind>
void launch_kind(const ExecutionContext& context, const ExpertsParams& p, WideExperts& a) {
  constexpr bool kIsFp4 = kKind == WeightKind::kFp4;
  // Where most rows come to every expert, tiles that hold all of them; elsewhere an expert with a few rows more than the
  // others must not cost a whole tile more.
  const int64_t most = p.x.size[0];
  const bool holds_all = most <= 288 && 4 * stream_tile_rows(p) >= 3 * most;
  const int64_t rows = holds_all ? most : stream_tile_rows(p);
  if (rows <= 160 || (rows > 288 && rows <= 320)) return launch_tiles<Wide<kKind, 160, 160, kIsFp4 ? 6 : 5, kIsFp4 ? 5 : 4, 2>>(context, p, a);
  if (holds_all && rows <= 240) return launch_tiles<Wide<kKind, 240, 240, kIsFp4 ? 5 : 4, 4, 2>>(context, p, a);
  if (holds_all && rows > 272) return launch_tiles<Wide<kKind, 288, 288, 4, kIsFp4 ? 4 : 3, 2>>(context, p, a);
  if (holds_all && rows > 256) return launch_tiles<Wide<kKind, 272, 272, 4, kIsFp4 ? 4 : 3, 2>>(context, p, a);
  launch_tiles<Wide<kKind, 256, 64, kIsFp4 ? 5 : 4, 3, 2>>(context, p, a);
}

}  // namespace

void experts_wide(const ExecutionContext& context, const ExpertsParams& p) {
  const int64_t experts = static_cast<int64_t>(p.experts.size()), assignments = p.out.size[0];
  WideExperts a{};
  const bool is_fp4 = fill_expert_table(p, a.table);
  a.num_groups = (assignments + 7 * std::min(experts, assignments)) / 8;
  a.segments[0] = num_expert_segments(p.experts.size(), 2 * a.table.inner, a.table.hidden);
  a.segments[1] = num_expert_segments(p.experts.size(), a.table.hidden, a.table.inner);
  a.is_aligned = reinterpret_cast<uintptr_t>(p.out.data) % 8 == 0 && p.out.stride[0] % 4 == 0;
  if (is_fp4) launch_kind<WeightKind::kFp4>(context, p, a);
  else launch_kind<WeightKind::kFp8>(context, p, a);
}

}  // namespace deepinfer
