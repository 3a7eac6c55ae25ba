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
  SegmentParts parts;
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

template <typename W>
__device__ int num_tiles(const WideLinear& a) {
  return (a.num_rows + W::kTokens - 1) / W::kTokens * ((a.weight.out + kWideOut * W::kSharers - 1) / (kWideOut * W::kSharers));
}

// Segments [segment, end) of a tile.
template <typename W>
__device__ WideOperands operands_of(const WideLinear& a, const Tile& t, int segment, int end) {
  const int64_t group = min(t.out, a.weight.out - 1) / a.group_out, units = a.weight.in / (2 * kChunkColumns);
  return {.codes = a.weight.codes,
          .scales = a.weight.scales,
          .codes_up = nullptr,
          .scales_up = nullptr,
          .in = a.weight.in,
          .first_row = t.out,
          .last_row = a.weight.out - 1,
          .first_chunk = static_cast<int32_t>(2 * (segment * units / a.segments)),
          .end_chunk = static_cast<int32_t>(2 * (end * units / a.segments)),
          .x = a.panels + (group * (a.weight.in / kPanelColumns) * a.num_groups + t.row / 8) * kGroupBytes,
          .panel_stride = a.num_groups * kGroupBytes,
          .num_groups = static_cast<int>(min(int64_t{W::kTokens / 8}, a.num_groups - t.row / 8)),
          .ready = nullptr,
          .ready_count = 0};
}

template <typename W, Segments kSegments>
struct SharedOf : W::Shared {
  float parts[kSegments == Segments::kInCluster ? W::kTokens / 2 : 1][kWideConsumers];
};

// Multiplies a tile, or a segment of it, and writes the sums.
template <typename W, Segments kSegments, int kTokens>
__device__ void run_tile(const WideLinear& a, SharedOf<W, kSegments>& s, int tile, int segment, const Tile& t,
                         const WideOperands& o, RingPlace& x_at, RingPlace& w_at, WideRegisters<W>& registers) {
  auto& sums = registers.template first<kTokens>();
  if constexpr (kSegments == Segments::kInTurn)
    multiply_segments<W, kTokens>(s, x_at, w_at, o.end_chunk, a.segments, a.store, registers);
  else multiply_wide<W, kTokens>(s, x_at, w_at, o.end_chunk - o.first_chunk, registers);
  if constexpr (kSegments == Segments::kInCluster) add_in_cluster<kTokens>(&s.parts[0][0], a.segments, sums);
  if constexpr (kSegments == Segments::kInMemory) {
    const int of_block = tile * W::kSharers + (W::kSharers > 1 ? static_cast<int>(cluster_rank()) : 0);
    put_segment<kTokens>(a.parts, of_block, segment, o.num_groups, sums);
    add_parts(a.parts, of_block, segment, o.num_groups, [&](int first, float(&four)[16]) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (const int eight = first + i * a.segments; eight < o.num_groups)
          write_sums<8>(a.output, t.row + 8 * eight, t.out, reinterpret_cast<float(&)[4]>(four[4 * i]), [](int) { return true; });
    });
  } else {
    write_sums<kTokens>(a.output, t.row, t.out, sums,
                        [&](int eight) { return kSegments == Segments::kInTurn || eight % a.segments == segment; });
  }
}

// A grid of blocks, or of clusters of W::kSharers, that go through the tiles or their segments; or (kInCluster) a cluster
// for each tile with a segment for each block.
template <typename W, Segments kSegments>
__global__ void __launch_bounds__(kWideThreads, 1) wide_linear_kernel(const __grid_constant__ WideLinear a) {
#if DEEPINFER_HAS_WARPGROUPS
  constexpr bool kIsCluster = kSegments == Segments::kInCluster || W::kSharers > 1;
  extern __shared__ uint8_t raw[];
  auto& s = aligned_shared<SharedOf<W, kSegments>>(raw);
  init_wide<W>(s);
  if constexpr (kIsCluster) wait_for_cluster();
  else __syncthreads();
  let_kernels_behind_begin();
  const unsigned cluster = kSegments == Segments::kInCluster ? a.segments : W::kSharers;
  const int parts = kSegments == Segments::kInMemory ? a.segments : 1;
  const auto segment_of = [&](int unit) {
    return kSegments == Segments::kInCluster ? static_cast<int>(cluster_rank()) : unit % parts;
  };
  const auto operands = [&](int unit, const Tile& t) {
    const int segment = segment_of(unit);
    return operands_of<W>(a, t, segment, kSegments == Segments::kInTurn ? a.segments : segment + 1);
  };
  const int units = num_tiles<W>(a) * parts;
  run_tiles<W>(
      s,
      [&](int i) {
        const int unit = static_cast<int>(blockIdx.x / cluster + i * (gridDim.x / cluster));
        return unit < units ? unit : -1;
      },
      [&](int unit) { return operands(unit, place_tile<W>(a, unit / parts)); },
      [&](int unit, RingPlace& x_at, RingPlace& w_at, WideRegisters<W>& registers) {
        const Tile t = place_tile<W>(a, unit / parts);
        const WideOperands o = operands(unit, t);
        with_tokens<W>(o.num_groups, [&](auto tokens) {
          run_tile<W, kSegments, decltype(tokens)::value>(a, s, unit / parts, segment_of(unit), t, o, x_at, w_at, registers);
        });
      });
  if (kSegments == Segments::kInCluster && threadIdx.x >= kWideConsumers) wait_for_cluster();
  if constexpr (kIsCluster) wait_for_cluster();  // no block leaves while others read or write it
#endif
}

template <WeightKind kKind>
void launch_panels(const ExecutionContext& context, const LinearParams& p, const WideLinear& a, unsigned counters) {
  const PanelActivations x{.x = p.x.data,
                           .row_stride = p.x.stride[0],
                           .num_rows = a.num_rows,
                           .columns = a.weight.in,
                           .num_groups = a.num_groups,
                           .round = p.round_activation,
                           .is_aligned = reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0,
                           .out = const_cast<uint8_t*>(a.panels),
                           .counters = a.parts.arrived,
                           .num_counters = static_cast<int32_t>(counters)};
  const dim3 grid(static_cast<unsigned>(a.num_groups), num_blocks(a.weight.in, kPanelSpan),
                  static_cast<unsigned>(p.num_groups));
  launch_overlapped(context, {grid, kPanelThreads}, panels_kernel<kKind>, x);
}

template <typename W, Segments kSegments>
void launch_wide(const ExecutionContext& context, const LinearParams& p, WideLinear& a) {
  constexpr bool kInCluster = kSegments == Segments::kInCluster, kInMemory = kSegments == Segments::kInMemory;
  const unsigned segments = static_cast<unsigned>(a.segments), cluster = kInCluster ? segments : W::kSharers;
  const unsigned tiles = num_blocks(a.num_rows, W::kTokens) * num_blocks(a.weight.out, kWideOut * W::kSharers);
  const unsigned units = kInMemory ? tiles * segments : tiles;
  const unsigned most = kInCluster ? units : multiprocessor_count() / W::kSharers;
  const unsigned blocks = std::min(units, most) * cluster, counters = kInMemory ? 2 * tiles * W::kSharers : 0;
  if (kInMemory) {
    const int32_t eights = static_cast<int32_t>(std::min<int64_t>(W::kTokens / 8, a.num_groups));
    a.parts = {context.scratch->take<float4>(int64_t{units} * W::kSharers * eights * kWideConsumers),
               context.scratch->take<uint32_t>(counters), a.segments, eights};
  } else if (!W::kKeepsTotals && a.segments > 1) {
    a.store.data = context.scratch->take<float4>(blocks * kStoreEights * kWideConsumers);
  }
  launch_panels<W::kKind>(context, p, a, counters);
  launch_overlapped(context, {dim3(blocks), kWideThreads, aligned_shared_bytes<SharedOf<W, kSegments>>(), cluster},
                    wide_linear_kernel<W, kSegments>, a);
}

// Sums of the segment and of those before it fit the registers. bf16 overlaps its products only in kernels of one kind.
template <WeightKind kKind>
using WideInRegisters = Wide<kKind, 128, kKind == WeightKind::kBf16 ? 128 : 32, kKind == WeightKind::kFp4 ? 8 : kKind == WeightKind::kFp8 ? 7 : 5,
                             kKind == WeightKind::kFp4 ? 5 : kKind == WeightKind::kFp8 ? 4 : 2, 2>;

template <typename W>
void launch_many(const ExecutionContext& context, const LinearParams& p, WideLinear& a) {
  const int64_t tiles = num_blocks(a.num_rows, W::kTokens) * num_blocks(a.weight.out, kWideOut);
  if (splits_fill(tiles, a.segments)) return launch_wide<W, Segments::kInMemory>(context, p, a);
  constexpr int kFewSegments = 3;  // sums of more should not go through memory
  if constexpr (!W::kKeepsTotals)
    if (a.segments > kFewSegments) return launch_wide<WideInRegisters<W::kKind>, Segments::kInTurn>(context, p, a);
  launch_wide<W, Segments::kInTurn>(context, p, a);
}

template <WeightKind kKind>
void launch_kind(const ExecutionContext& context, const LinearParams& p, WideLinear& a) {
  constexpr bool kIsFp4 = kKind == WeightKind::kFp4, kIsFp8 = kKind == WeightKind::kFp8;
  using Few = Wide<kKind, 64, kIsFp8 || kIsFp4 ? 16 : 64, 7, kIsFp4 ? 12 : kIsFp8 ? 7 : 3, 1>;
  if (a.num_rows > (kIsFp8 ? 64 : few_rows(a.segments, 64))) {
    if constexpr (kIsFp8) {  // the only large matrices of the model: one tile has all rows where there are not too many
      if (a.num_rows <= 160 || (a.num_rows > 288 && a.num_rows <= 320)) return launch_many<Wide<kKind, 160, 160, 6, 5, 2>>(context, p, a);
      if (a.num_rows <= 192) return launch_many<Wide<kKind, 192, 192, 5, 5, 2>>(context, p, a);
      if (a.num_rows <= 240) return launch_many<Wide<kKind, 240, 240, 5, 4, 2>>(context, p, a);
      if (a.num_rows > 256 && a.num_rows <= 272) return launch_many<Wide<kKind, 272, 272, 4, 4, 2>>(context, p, a);
      if (a.num_rows > 272 && a.num_rows <= 288) return launch_many<Wide<kKind, 288, 288, 4, 4, 2>>(context, p, a);
      return launch_many<Wide<kKind, 256, 64, 5, 3, 2>>(context, p, a);
    }
    if constexpr (!kIsFp8 && !kIsFp4)
      if (a.segments == 1 && a.num_rows > 128) {  // the head
        const bool is_even = a.num_rows <= 160 || (a.num_rows > 288 && a.num_rows <= 320);
        return is_even ? launch_wide<Wide<kKind, 160, 160, 5, 3, 2>, Segments::kInTurn>(context, p, a)
                       : launch_wide<Wide<kKind, 288, 288, 3, 3, 2>, Segments::kInTurn>(context, p, a);
      }
    return launch_wide<WideInRegisters<kKind>, Segments::kInTurn>(context, p, a);
  }
  if (a.segments > 1) launch_wide<Few, Segments::kInCluster>(context, p, a);
  else launch_wide<Few, Segments::kInTurn>(context, p, a);
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
               .parts = {},
               .output = linear_output(p)};
  if (std::holds_alternative<Fp4Matrix>(p.weight)) launch_kind<WeightKind::kFp4>(context, p, a);
  else if (std::holds_alternative<Fp8Matrix>(p.weight)) launch_kind<WeightKind::kFp8>(context, p, a);
  else launch_kind<WeightKind::kBf16>(context, p, a);
}

}  // namespace deepinfer
