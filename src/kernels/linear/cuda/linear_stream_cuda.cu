// SPDX-License-Identifier: MIT
// Linear of packed weights for few rows.
#include "kernels/linear/cuda/activations.cuh"
#include "kernels/linear/cuda/linear_output.cuh"
#include "kernels/linear/cuda/linear_tensor.h"
#include "kernels/linear/cuda/panel_activations.cuh"
#include "kernels/linear/cuda/stream_tile.cuh"

namespace deepinfer {
namespace {

struct StreamLinear {
  DeviceMatrix weight;  // of all groups
  int32_t group_out, segments, row_tiles;
  const uint8_t* panels;  // of group z from z * in / 64 * num_groups on
  int64_t num_groups;     // of eight rows
  LinearOutput output;
};

// Segment `rank` of a tile's panels.
template <typename S>
__device__ StreamPanels panels_of(const StreamLinear& a, int out, int row, int rank) {
  const int64_t group = min(out, a.weight.out - 1) / a.group_out;
  const int units = a.weight.in / (2 * kChunkColumns);
  return {a.panels + (group * (a.weight.in / kPanelColumns) * a.num_groups + row / 8) * kGroupBytes,
          a.num_groups * kGroupBytes, static_cast<int>(min(int64_t{S::kTokens / 8}, a.num_groups - row / 8)),
          2 * (rank * units / a.segments), 2 * ((rank + 1) * units / a.segments)};
}

// A cluster has a tile, its blocks a segment each. Tiles of the same outputs follow each other: they share weights.
template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) stream_linear_kernel(const __grid_constant__ StreamLinear a) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ uint8_t raw[];
  auto& s = aligned_shared<typename S::Shared>(raw);
  init_stream<S>(s);
  const int rank = static_cast<int>(blockIdx.x) % a.segments, tile = static_cast<int>(blockIdx.x) / a.segments;
  const int out = tile / a.row_tiles * S::kOut, row = tile % a.row_tiles * S::kTokens;
  const StreamPanels panels = panels_of<S>(a, out, row, rank);
  const int first_row = out + static_cast<int>(threadIdx.x) / 32 * 16;
  float sums[S::kTokens / 2];
  stream_sums<S>(s, a.weight, first_row, a.weight, first_row + 8, panels, sums);
  if (a.segments > 1) add_stream_segments<S>(s, a.segments, sums);
  write_sums<S::kTokens>(a.output, row, out, sums, [&](int eight) { return eight % a.segments == rank; });
  if (a.segments > 1) wait_for_cluster();  // no block leaves while others read its sums
#endif
}

template <typename S>
void launch_stream(const ExecutionContext& context, StreamLinear& a) {
  a.row_tiles = static_cast<int32_t>(num_blocks(a.output.num_rows, S::kTokens));
  const unsigned tiles = num_blocks(a.weight.out, S::kOut) * static_cast<unsigned>(a.row_tiles), segments = static_cast<unsigned>(a.segments);
  launch_overlapped(context, {dim3(tiles * segments), S::kThreads, aligned_shared_bytes<typename S::Shared>(), segments},
                    stream_linear_kernel<S>, a);
}

template <WeightKind kKind>
void launch_kind(const ExecutionContext& context, const LinearParams& p, StreamLinear& a) {
  const PanelActivations x{.x = p.x.data,
                           .row_stride = p.x.stride[0],
                           .num_rows = a.output.num_rows,
                           .columns = a.weight.in,
                           .num_groups = a.num_groups,
                           .round = p.round_activation,
                           .is_aligned = reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0,
                           .out = const_cast<uint8_t*>(a.panels)};
  const dim3 grid(static_cast<unsigned>(a.num_groups), num_blocks(a.weight.in, kPanelSpan),
                  static_cast<unsigned>(p.num_groups));
  launch_overlapped(context, {grid, kPanelThreads}, panels_kernel<kKind>, x);
  const int rows = a.output.num_rows;
  if (rows <= 8) return launch_stream<Stream<kKind, 8, 2, 8, 5>>(context, a);
  if constexpr (kKind == WeightKind::kFp8) {  // the model has no other large matrices
    if (rows <= 16) return launch_stream<Stream<kKind, 16, 2, 6, 5>>(context, a);
    if (rows <= 32) return launch_stream<Stream<kKind, 32, 2, 4, 4>>(context, a);
    if (rows > 64) return launch_stream<Stream<kKind, 96, 2, 2, 3>>(context, a);
  }
  launch_stream<Stream<kKind, 64, 2, 3, 3>>(context, a);
}

}  // namespace

bool fits_stream(const LinearParams& p) {
  if (std::holds_alternative<Fp8Matrix>(p.weight)) return p.x.size[0] <= kStreamRows;
  constexpr int64_t kFp4Rows = 192;  // its tiles of many rows are narrower: the model has no such matrix
  return std::holds_alternative<Fp4Matrix>(p.weight) &&
         p.x.size[0] <= few_rows(num_segments(num_outputs(p.weight), num_inputs(p.weight), true), kFp4Rows);
}

void linear_stream(const ExecutionContext& context, const LinearParams& p) {
  const DeviceMatrix weight = std::visit([](const auto& m) { return device_matrix(m); }, p.weight);
  const int64_t groups = (p.x.size[0] + 7) / 8;
  StreamLinear a{.weight = weight,
                 .group_out = weight.out / p.num_groups,
                 .segments = num_segments(weight.out, weight.in, true),
                 .row_tiles = 1,
                 .panels = context.scratch->take<uint8_t>(groups * 16 * weight.in * p.num_groups),
                 .num_groups = groups,
                 .output = linear_output(p)};
  if (std::holds_alternative<Fp4Matrix>(p.weight)) launch_kind<WeightKind::kFp4>(context, p, a);
  else launch_kind<WeightKind::kFp8>(context, p, a);
}

}  // namespace deepinfer
