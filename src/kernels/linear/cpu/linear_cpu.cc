// SPDX-License-Identifier: MIT
// The CPU rows of the linear op: activation rows are prepared once, then the work is cut into tiles (weight_tile.h).
#include <algorithm>

#include "base/range.h"
#include "kernels/linear/cpu/weight_tile.h"

namespace deepinfer {
namespace {

struct Plan {
  const LinearParams& p;
  const TileKernels& kernels;
  int64_t rows, in, group_out, tiles_per_group;
  uint8_t* prepared;  // [rows, num_groups] rows of row_bytes
  int64_t row_bytes;
  const uint8_t* row(int64_t r, int64_t group) const { return prepared + (r * p.num_groups + group) * row_bytes; }
};

struct Tile {
  int64_t group, out_begin, out_size;  // outputs counted over all groups
  int64_t row_begin, row_size;
};

Tile tile_of(const Plan& plan, int64_t item) {
  // Two tiles of rows pass over each tile of weights, so that it comes from memory once for both; more would drive the
  // activations from the second cache. Planes fetch their weights ahead and leave the cache to one tile of rows.
  const int64_t most = plan.kernels.rows_together, columns = plan.tiles_per_group * plan.p.num_groups,
                row_tiles = ceil_div(plan.rows, kTileRows), block = item / (most * columns),
                in_block = item - block * most * columns, rows_in_block = std::min(most, row_tiles - most * block),
                column = in_block / rows_in_block, group = column / plan.tiles_per_group;
  const int64_t begin = column % plan.tiles_per_group * kTileOut,
                row_begin = (most * block + in_block % rows_in_block) * kTileRows;
  return {group, group * plan.group_out + begin, std::min(kTileOut, plan.group_out - begin), row_begin,
          std::min(kTileRows, plan.rows - row_begin)};
}

void finish(const Plan& plan, const Tile& tile, float* y) {
  const LinearParams& p = plan.p;
  for (int64_t r = 0; r < tile.row_size; ++r, y += kTileOut) {
    for (int64_t i = 0; i < tile.out_size && !p.bias.empty(); ++i) y[i] += p.bias[tile.out_begin + i];
    if (p.out.data) {
      bf16* out = p.out.row(tile.row_begin + r) + tile.out_begin;
      plan.kernels.round_bf16(y, tile.out_size, reinterpret_cast<uint16_t*>(out));
      continue;
    }
    float* out = p.out_f32.row(tile.row_begin + r) + tile.out_begin;
    if (!p.add) std::copy_n(y, tile.out_size, out);
    else
      for (int64_t i = 0; i < tile.out_size; ++i) out[i] += y[i];
  }
}

void run_tile(const Plan& plan, int64_t item, uint8_t* workspace) {
  const Tile tile = tile_of(plan, item);
  const uint8_t* rows[kTileRows];  // as many as the tile has are set
  rows[0] = nullptr;
  for (int64_t r = 0; r < tile.row_size; ++r) rows[r] = plan.row(tile.row_begin + r, tile.group);
  alignas(64) float y[kTileRows * kTileOut];
  plan.kernels.multiply({plan.p.weight, tile.out_begin, tile.out_size}, rows, tile.row_size, workspace, y);
  finish(plan, tile, y);
}

void linear(const ExecutionContext& context, const LinearParams& p, const TileKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t rows = p.x.size[0], in = num_inputs(p.weight), group_out = num_outputs(p.weight) / p.num_groups;
  if (rows == 0) return;
  const int64_t row_bytes = kernels.row_bytes(in), workspace_bytes = kernels.workspace_bytes(in);
  const Plan plan{p,
                  kernels,
                  rows,
                  in,
                  group_out,
                  ceil_div(group_out, kTileOut),
                  context.scratch->take<uint8_t>(rows * p.num_groups * row_bytes),
                  row_bytes};
  const bool planes = rows > kFewRows || layout_of(p.weight) == WeightLayout::kPlanes;
  for_each_item(context, rows, static_cast<double>(rows * p.num_groups * in), [&](int64_t r, int) {
    for (int64_t g = 0; g < p.num_groups; ++g)
      kernels.prepare(reinterpret_cast<const uint16_t*>(p.x.row(r)) + g * in, 0, in, in, p.round_activation, planes,
                      plan.prepared + (r * p.num_groups + g) * row_bytes);
  });
  uint8_t* workspaces = context.scratch->take<uint8_t>(context.num_threads() * workspace_bytes);
  const int64_t items = plan.tiles_per_group * p.num_groups * ceil_div(rows, kTileRows);
  for_each_item(context, items, static_cast<double>(rows * in) * static_cast<double>(num_outputs(p.weight)),
                [&](int64_t item, int worker) { run_tile(plan, item, workspaces + worker * workspace_bytes); });
}

}  // namespace

void linear_avx2(const ExecutionContext& context, const LinearParams& p) { linear(context, p, tile_kernels_avx2()); }
void linear_avx512(const ExecutionContext& context, const LinearParams& p) {
  linear(context, p, tile_kernels_avx512());
}
// Planes hold one column of sixteen outputs where a pair needs two: they are read over fp32 lanes.
void linear_bf16(const ExecutionContext& context, const LinearParams& p) {
  linear(context, p, layout_of(p.weight) == WeightLayout::kPlanes ? tile_kernels_avx512() : tile_kernels_bf16());
}

}  // namespace deepinfer
