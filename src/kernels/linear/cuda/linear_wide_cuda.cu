// SPDX-License-Identifier: MIT
// Linear on warpgroups, for more than a few rows.
#include "kernels/linear/cuda/activations.cuh"
#include "kernels/linear/cuda/linear_output.cuh"
#include "kernels/linear/cuda/linear_tensor.h"
#include "kernels/linear/cuda/panel_activations.cuh"
#include "kernels/linear/cuda/wide_rounds.cuh"

namespace deepinfer {
namespace {

struct WideLinear {
  DeviceMatrix weight;  // of all groups
  int32_t group_out, num_rows, segments;
  const uint8_t* panels;  // of group z from z * in / 64 * num_groups on
  int64_t num_groups;     // of eight rows
  SegmentStore store;
  LinearOutput output;
};

struct Tile {
  int32_t out, row;  // the first
};

// Eight tiles of rows together run through all outputs, so that what runs at one time shares both operands. A tile of
// a cluster has one place in this order; its blocks have the outputs one after another.
template <typename W>
__device__ Tile place_tile(const WideLinear& a, int tile) {
  const int row_tiles = (a.num_rows + W::kTokens - 1) / W::kTokens;
  const int out_tiles = (a.weight.out + kWideOut * W::kSharers - 1) / (kWideOut * W::kSharers);
  const int band = tile / (8 * out_tiles), width = min(8, row_tiles - 8 * band), in_band = tile - band * 8 * out_tiles;
  const int rank = W::kSharers > 1 ? static_cast<int>(cluster_rank()) : 0;
  return {(in_band / width * W::kSharers + rank) * kWideOut, (8 * band + in_band % width) * W::kTokens};
}

template <typename W, bool kSplits>
__device__ WideOperands operands_of(const WideLinear& a, const Tile& t) {
  const int64_t group = min(t.out, a.weight.out - 1) / a.group_out, units = a.weight.in / (2 * kChunkColumns);
  const int rank = kSplits ? static_cast<int>(cluster_rank()) : 0, parts = kSplits ? a.segments : 1;
  return {.codes = a.weight.codes,
          .scales = a.weight.scales,
          .codes_up = nullptr,
          .scales_up = nullptr,
          .in = a.weight.in,
          .first_row = t.out,
          .last_row = a.weight.out - 1,
          .first_chunk = static_cast<int32_t>(2 * (rank * units / parts)),
          .end_chunk = static_cast<int32_t>(2 * ((rank + 1) * units / parts)),
          .x = a.panels + (group * (a.weight.in / kPanelColumns) * a.num_groups + t.row / 8) * kGroupBytes,
          .panel_stride = a.num_groups * kGroupBytes,
          .num_groups = static_cast<int>(min(int64_t{W::kTokens / 8}, a.num_groups - t.row / 8))};
}

template <typename W, bool kSplits>
struct SharedOf : W::Shared {
  float parts[kSplits ? W::kTokens / 2 : 1][kWideConsumers];
};

// A grid of blocks that go through the tiles, or (kSplits) a cluster for each tile with a segment for each block.
template <typename W, bool kSplits>
__global__ void __launch_bounds__(kWideThreads, 1) wide_linear_kernel(const __grid_constant__ WideLinear a) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ uint8_t raw[];
  auto& s = aligned_shared<SharedOf<W, kSplits>>(raw);
  init_wide<W>(s);
  if constexpr (kSplits || W::kSharers > 1) wait_for_cluster();
  else __syncthreads();
  let_kernels_behind_begin();
  const int cluster = kSplits ? a.segments : W::kSharers, row_tiles = (a.num_rows + W::kTokens - 1) / W::kTokens;
  const int num_tiles = row_tiles * ((a.weight.out + kWideOut * W::kSharers - 1) / (kWideOut * W::kSharers));
  run_tiles<W>(
      s, static_cast<int>(blockIdx.x) / cluster, num_tiles, static_cast<int>(gridDim.x) / cluster, false,
      [&](int tile) { return operands_of<W, kSplits>(a, place_tile<W>(a, tile)); },
      [&](int tile, RingPlace& x_at, RingPlace& w_at, WideRegisters<W>& registers) {
        const Tile t = place_tile<W>(a, tile);
        const WideOperands o = operands_of<W, kSplits>(a, t);
        with_tokens<W>(o.num_groups, [&](auto tokens) {
          constexpr int kTokens = decltype(tokens)::value;
          auto& sums = registers.template first<kTokens>();
          if constexpr (kSplits) {
            multiply_wide<W, kTokens>(s, x_at, w_at, o.end_chunk - o.first_chunk, registers);
            add_in_cluster<kTokens>(&s.parts[0][0], a.segments, sums);
            const int rank = static_cast<int>(cluster_rank());
            write_sums<kTokens>(a.output, t.row, t.out, sums, [&](int eight) { return eight % a.segments == rank; });
          } else {
            multiply_segments<W, kTokens>(s, x_at, w_at, o.end_chunk, a.segments, a.store, registers);
            write_sums<kTokens>(a.output, t.row, t.out, sums, [](int) { return true; });
          }
        });
      });
  if (kSplits && threadIdx.x >= kWideConsumers) wait_for_cluster();
  if constexpr (kSplits || W::kSharers > 1) wait_for_cluster();  // no block leaves while others read or write it
#endif
}

template <typename W, bool kSplits>
void launch_wide(const ExecutionContext& context, WideLinear& a) {
  const unsigned cluster = kSplits ? static_cast<unsigned>(a.segments) : W::kSharers;
  const unsigned tiles = num_blocks(a.num_rows, W::kTokens) * num_blocks(a.weight.out, kWideOut * W::kSharers);
  const unsigned most = kSplits ? tiles : multiprocessor_count() / W::kSharers;
  const unsigned blocks = std::min(tiles, most) * cluster;
  if (!W::kKeepsTotals && a.segments > 1) a.store.data = context.scratch->take<float4>(int64_t{blocks} * 32 * kWideConsumers);
  launch_overlapped(context, {dim3(blocks), kWideThreads, aligned_shared_bytes<SharedOf<W, kSplits>>(), cluster},
                    wide_linear_kernel<W, kSplits>, a);
}

template <WeightKind kKind>
void launch_kind(const ExecutionContext& context, const LinearParams& p, WideLinear& a) {
  const PanelActivations x{.x = p.x.data,
                           .row_stride = p.x.stride[0],
                           .num_rows = a.num_rows,
                           .columns = a.weight.in,
                           .num_groups = a.num_groups,
                           .round = p.round_activation,
                           .is_aligned = reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0,
                           .out = const_cast<uint8_t*>(a.panels)};
  const dim3 grid(static_cast<unsigned>(a.num_groups), num_blocks(a.weight.in, kPanelSpan),
                  static_cast<unsigned>(p.num_groups));
  launch_overlapped(context, {grid, kPanelThreads}, panels_kernel<kKind>, x);
  constexpr bool kIsFp4 = kKind == WeightKind::kFp4, kIsFp8 = kKind == WeightKind::kFp8;
  using Few = Wide<kKind, 64, 7, kIsFp4 ? 12 : kIsFp8 ? 7 : 3, 1>;
  using Segments = Wide<kKind, 128, kIsFp4 ? 8 : kIsFp8 ? 7 : 5, kIsFp4 ? 5 : kIsFp8 ? 4 : 2, 2>;  // sums of both in registers
  if (a.num_rows > few_rows(a.segments, 64)) {
    if constexpr (kIsFp8) {           // the only large matrices of the model
      constexpr int kFewSegments = 3;  // sums of the segments so far go through memory
      if (a.num_rows <= 2 * 144) return launch_wide<Wide<kKind, 144, 6, 4, 2>, false>(context, a);
      if (a.segments <= kFewSegments) return launch_wide<Wide<kKind, 256, 5, 3, 2>, false>(context, a);
    }
    return launch_wide<Segments, false>(context, a);
  }
  if (a.segments > 1) launch_wide<Few, true>(context, a);
  else launch_wide<Few, false>(context, a);
}

}  // namespace

bool fits_warpgroups(const LinearParams& p) {
  const DeviceMatrix m = std::visit([](const auto& w) { return device_matrix(w); }, p.weight);
  const bool is_bf16 = std::holds_alternative<Bf16Matrix>(p.weight);
  return kHasWarpgroups && m.in % (2 * kChunkColumns) == 0 && reinterpret_cast<uintptr_t>(m.codes) % 16 == 0 &&
         (is_bf16 || reinterpret_cast<uintptr_t>(m.scales) % 8 == 0) &&
         (p.num_groups == 1 || m.out / p.num_groups % (2 * kWideOut) == 0);
}

void linear_wide(const ExecutionContext& context, const LinearParams& p) {
  const DeviceMatrix weight = std::visit([](const auto& m) { return device_matrix(m); }, p.weight);
  const int64_t groups = (p.x.size[0] + 7) / 8;
  WideLinear a{.weight = weight,
               .group_out = weight.out / p.num_groups,
               .num_rows = static_cast<int32_t>(p.x.size[0]),
               .segments = num_segments(weight.out, weight.in, !std::holds_alternative<Bf16Matrix>(p.weight)),
               .panels = context.scratch->take<uint8_t>(groups * 16 * weight.in * p.num_groups),
               .num_groups = groups,
               .store = {},
               .output = linear_output(p)};
  if (std::holds_alternative<Fp4Matrix>(p.weight)) launch_kind<WeightKind::kFp4>(context, p, a);
  else if (std::holds_alternative<Fp8Matrix>(p.weight)) launch_kind<WeightKind::kFp8>(context, p, a);
  else launch_kind<WeightKind::kBf16>(context, p, a);
}

}  // namespace deepinfer
