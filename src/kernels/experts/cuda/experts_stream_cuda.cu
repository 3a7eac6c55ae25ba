// SPDX-License-Identifier: MIT
// Experts of few rows each: the tiles of linear_stream_cuda.cu, with SwiGLU behind the first product.
#include "kernels/experts/cuda/experts_tensor.h"
#include "kernels/experts/cuda/hidden_rows.cuh"
#include "kernels/linear/cuda/stream_tile.cuh"

namespace deepinfer {
namespace {

struct StreamExperts {
  ExpertTable<kExpertsMax> table;
  const uint8_t* panels;  // of x or of the hidden channels
  uint8_t* hidden_panels;
  int64_t num_groups;  // at most: panels have room for so many
  int32_t segments;
  bool is_aligned;  // out, for eight bytes at a time
};

template <WeightKind kKind>
__global__ void __launch_bounds__(kPanelThreads)
    place_panels_kernel(PanelActivations a, View<const int32_t, dim::experts> begin, View<const int32_t, dim::assignments> token) {
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

template <typename S>
__device__ void emit_out(const StreamExperts& a, const ExpertPlace& place, int out, int rank, const float (&sums)[S::kTokens / 2]) {
  const int64_t first = a.table.begin(place.expert) + place.row;
  emit_fours<S::kTokens>(sums, [&](int eight) { return eight % a.segments == rank; }, [&](int token, int o, uint2 four) {
    if (token >= place.num_rows || out + o >= a.table.hidden) return;
    bf16* to = &a.table.out(first + token, out + o);
    if (a.is_aligned) *reinterpret_cast<uint2*>(to) = four;
    else
      for (int i = 0; i < 4; ++i) to[i] = {static_cast<uint16_t>((i < 2 ? four.x : four.y) >> (i % 2 * 16))};
  });
}

// blockIdx: x segment of a tile of outputs, y tile of rows. Gates stand in rows g of a warp, their ups in rows g + 8.
template <typename S, bool kIsHidden>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) stream_experts_kernel(const __grid_constant__ StreamExperts a) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ uint8_t raw[];
  auto& s = aligned_shared<typename S::Shared>(raw);
  const ExpertPlace place = find_place(a.table.begin, static_cast<int>(blockIdx.y), S::kTokens);
  if (place.expert < 0) return wait_for_kernels_before();  // all blocks of a cluster
  init_stream<S>(s);
  const int warp = static_cast<int>(threadIdx.x) / 32, each = kIsHidden ? 8 : 16;
  const int rank = static_cast<int>(blockIdx.x) % a.segments, tile = static_cast<int>(blockIdx.x) / a.segments * (S::kWarps * each);
  const DeviceMatrix m = kIsHidden ? a.table.w1(place.expert) : a.table.w2(place.expert),
                     high = kIsHidden ? a.table.w3(place.expert) : m;
  const int row = tile + each * warp, high_row = kIsHidden ? row : row + 8, units = m.in / (2 * kChunkColumns);
  const StreamPanels panels{a.panels + (place.first_group + place.row / 8) * int64_t{kGroupBytes}, a.num_groups * kGroupBytes,
                            (min(S::kTokens, place.num_rows) + 7) / 8, 2 * (rank * units / a.segments),
                            2 * ((rank + 1) * units / a.segments)};
  float sums[S::kTokens / 2];
  stream_sums<S>(s, m, row, high, high_row, panels, sums);
  __syncthreads();  // panels have been read
  if constexpr (S::kWarps == 8)
    if (a.segments > 1) add_stream_segments<S>(s, a.segments, sums), wait_for_cluster();
  if constexpr (kIsHidden) {  // the stage takes the place of the panels
    uint32_t* stage = reinterpret_cast<uint32_t*>(s.x) + warp / 4 * (S::kTokens * kStagePitch);
    static_assert(S::kWarps / 4 * S::kTokens * kStagePitch * 4 <= sizeof(s.x));
    emit_hidden<S::kKind, S::kTokens, S::kTokens>(a.table, place, a.hidden_panels, a.num_groups, stage, tile + warp / 4 * 32,
                                                  [&](int eight) { return eight % a.segments == rank ? 8 * eight : -8; }, sums);
  } else {
    emit_out<S>(a, place, row, rank, sums);
  }
#endif
}

template <typename S, bool kIsHidden>
void launch_product(const ExecutionContext& context, const ExpertsParams& p, StreamExperts& a) {
  const int out = kIsHidden ? 2 * a.table.inner : a.table.hidden, in = kIsHidden ? a.table.hidden : a.table.inner;
  const int64_t experts = static_cast<int64_t>(p.experts.size()), assignments = p.out.size[0];
  const unsigned row_tiles = experts == 1 ? num_blocks(assignments, S::kTokens)
                                          : static_cast<unsigned>(assignments / S::kTokens + std::min(experts, assignments));
  a.segments = num_expert_segments(p.experts.size(), out, in);
  launch_overlapped(context, {dim3(num_blocks(out, S::kOut) * static_cast<unsigned>(a.segments), row_tiles), S::kThreads,
                              aligned_shared_bytes<typename S::Shared>(), static_cast<unsigned>(a.segments)},
                    stream_experts_kernel<S, kIsHidden>, a);
}

// Multiprocessors' time for the second product in tiles of `warpgroups`, up to a factor: whole rounds of them.
inline int64_t rounds_of(const ExpertsParams& p, int64_t hidden, int warpgroups) {
  const int64_t at_once = (warpgroups > 2 ? 1 : 2) * int64_t{multiprocessor_count()};
  const int64_t tiles = static_cast<int64_t>(p.experts.size()) * num_blocks(hidden, 64 * warpgroups);
  return (tiles + at_once - 1) / at_once * at_once * warpgroups;
}

template <WeightKind kKind, int kTokens, int kXSlots, int kWSlots>
void launch_experts(const ExecutionContext& context, const ExpertsParams& p, StreamExperts& a) {
  using S = Stream<kKind, kTokens, 2, kXSlots, kWSlots>;
  launch_product<S, true>(context, p, a);
  a.panels = a.hidden_panels;
  if constexpr (kKind == WeightKind::kFp4 && kTokens <= 48)
    if (p.experts.size() > 1 && rounds_of(p, a.table.hidden, 5) < rounds_of(p, a.table.hidden, 2))
      return launch_product<Stream<kKind, kTokens, 5, 4, 3>, false>(context, p, a);
  launch_product<S, false>(context, p, a);
}

template <WeightKind kKind>
void launch_kind(const ExecutionContext& context, const ExpertsParams& p, StreamExperts& a) {
  auto* panels = context.scratch->take<uint8_t>(a.num_groups * 16 * a.table.hidden);
  const PanelActivations x{.x = p.x.data,
                           .row_stride = p.x.stride[0],
                           .num_rows = p.x.size[0],
                           .columns = a.table.hidden,
                           .num_groups = a.num_groups,
                           .round = true,
                           .is_aligned = reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0,
                           .out = panels};
  launch_overlapped(context, {dim3(static_cast<unsigned>(a.num_groups), num_blocks(a.table.hidden, kPanelSpan)), kPanelThreads},
                    place_panels_kernel<kKind>, x, p.begin, p.token);
  a.panels = panels;
  a.hidden_panels = context.scratch->take<uint8_t>(a.num_groups * 16 * a.table.inner);
  const int64_t rows = stream_tile_rows(p);
  if (rows <= 8) return launch_experts<kKind, 8, 8, 4>(context, p, a);
  if constexpr (kKind == WeightKind::kFp4) {
    if (rows <= 16) return launch_experts<kKind, 16, 6, 4>(context, p, a);
    if (rows > 32 && rows <= 48) return launch_experts<kKind, 48, 4, 3>(context, p, a);
  }
  if (rows <= 32) return launch_experts<kKind, 32, 4, 4>(context, p, a);
  if (rows <= 64) return launch_experts<kKind, 64, 3, 3>(context, p, a);
  launch_experts<kKind, 96, 2, 3>(context, p, a);
}

}  // namespace

void experts_stream(const ExecutionContext& context, const ExpertsParams& p) {
  const int64_t experts = static_cast<int64_t>(p.experts.size()), assignments = p.out.size[0];
  StreamExperts a{};
  const bool is_fp4 = fill_expert_table(p, a.table);
  a.num_groups = (assignments + 7 * std::min(experts, assignments)) / 8;
  a.is_aligned = reinterpret_cast<uintptr_t>(p.out.data) % 8 == 0 && p.out.stride[0] % 4 == 0;
  if (is_fp4) launch_kind<WeightKind::kFp4>(context, p, a);
  else launch_kind<WeightKind::kFp8>(context, p, a);
}

}  // namespace deepinfer
