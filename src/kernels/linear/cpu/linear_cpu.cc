// SPDX-License-Identifier: MIT
// The CPU rows of the linear op. The work is cut into tiles of 32 outputs (one scale row of an Fp8Matrix) by up to 96
// activation rows. A few rows walk the packed weights directly; more rows share a panel of unpacked weights.
#include <algorithm>

#include "kernels/linear/cpu/linear_kernels.h"
#include "kernels/linear/linear.h"

namespace deepinfer {
namespace {

constexpr int64_t kTileOut = 32, kTileRows = 96, kPanelOut = 8;
constexpr int64_t kFewRowsMost = 8;  // at most kPanelOut: their folded activations take the panel's place

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

struct Plan {
  const LinearParams& p;
  const LinearKernels& kernels;
  int64_t rows, in, stride, group_out, tiles_per_group;
  const float* x;      // [rows, num_groups, stride]
  float* panels;       // per worker
  int64_t panel_size;  // floats of one worker: panel or folded activation, then results
};

struct Tile {
  int64_t group, out_begin, out_size;  // outputs counted over all groups
  int64_t row_begin, row_size;
};

Tile tile_of(const Plan& plan, int64_t item) {
  const int64_t tiles = plan.tiles_per_group * plan.p.num_groups, column = item % tiles,
                group = column / plan.tiles_per_group;
  const int64_t begin = column % plan.tiles_per_group * kTileOut, row_begin = item / tiles * kTileRows;
  return {group, group * plan.group_out + begin, std::min(kTileOut, plan.group_out - begin), row_begin,
          std::min(kTileRows, plan.rows - row_begin)};
}

// A few rows, straight from the packed weights. An Fp8Matrix's scales are the same for the 32 outputs of a tile, so
// they are folded into the activation; the other formats take it as it is.
void multiply_few(const Plan& plan, const Tile& tile, const float* x, float* folded, float* y) {
  const LinearKernels& k = plan.kernels;
  FewRows rows{x, plan.stride * plan.p.num_groups, tile.row_size};
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&plan.p.weight)) {
    for (int64_t m = 0; m < rows.size; ++m)
      k.fold_scales(x + m * rows.stride, plan.in, fp8->row_scales(tile.out_begin), folded + m * plan.stride);
    k.fp8_rows(fp8->row(tile.out_begin), plan.in, {folded, plan.stride, rows.size}, tile.out_size, y, kTileOut);
  } else if (const auto* fp4 = std::get_if<Fp4Matrix>(&plan.p.weight)) {
    k.fp4_rows(fp4->row(tile.out_begin), fp4->row_scales(tile.out_begin), plan.in, rows, tile.out_size, y, kTileOut);
  } else {
    k.bf16_rows(words(std::get<Bf16Matrix>(plan.p.weight).row(tile.out_begin)), plan.in, rows, tile.out_size, y,
                kTileOut);
  }
}

void unpack(const Plan& plan, int64_t out_begin, int64_t size, float* panel) {
  const LinearKernels& k = plan.kernels;
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&plan.p.weight))
    k.unpack_fp8(fp8->row(out_begin), fp8->row_scales(out_begin), plan.in, size, panel);
  else if (const auto* fp4 = std::get_if<Fp4Matrix>(&plan.p.weight))
    k.unpack_fp4(fp4->row(out_begin), fp4->row_scales(out_begin), plan.in, size, panel);
  else k.unpack_bf16(words(std::get<Bf16Matrix>(plan.p.weight).row(out_begin)), plan.in, size, panel);
}

void finish(const Plan& plan, const Tile& tile, const float* y) {
  const LinearParams& p = plan.p;
  for (int64_t r = 0; r < tile.row_size; ++r) {
    for (int64_t i = 0; i < tile.out_size; ++i) {
      const int64_t o = tile.out_begin + i;
      float value = y[r * kTileOut + i];
      if (!p.bias.empty()) value += p.bias[o];
      if (p.out.data) p.out.row(tile.row_begin + r)[o] = to_bf16(value);
      else if (p.add) p.out_f32.row(tile.row_begin + r)[o] += value;
      else p.out_f32.row(tile.row_begin + r)[o] = value;
    }
  }
}

void run_tile(const Plan& plan, int64_t item, int worker) {
  const Tile tile = tile_of(plan, item);
  float* panel = plan.panels + worker * plan.panel_size;
  float* y = panel + kPanelOut * plan.stride;
  const int64_t x_stride = plan.stride * plan.p.num_groups;
  const float* x = plan.x + tile.row_begin * x_stride + tile.group * plan.stride;
  if (tile.row_size <= kFewRowsMost) {
    multiply_few(plan, tile, x, panel, y);
  } else {
    for (int64_t o = 0; o < tile.out_size; o += kPanelOut) {
      const int64_t size = std::min(kPanelOut, tile.out_size - o);
      unpack(plan, tile.out_begin + o, size, panel);
      plan.kernels.panel(x, tile.row_size, x_stride, panel, size, plan.stride, y + o, kTileOut);
    }
  }
  finish(plan, tile, y);
}

void linear(const ExecutionContext& context, const LinearParams& p, const LinearKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t rows = p.x.size[0], in = num_inputs(p.weight), stride = round_up<int64_t>(in, 32),
                group_out = num_outputs(p.weight) / p.num_groups;
  if (rows == 0) return;
  float* x = context.scratch->take<float>(rows * p.num_groups * stride);
  for_each_item(context, rows, static_cast<double>(rows * p.num_groups * in), [&](int64_t r, int) {
    for (int64_t g = 0; g < p.num_groups; ++g)
      kernels.prepare_row(words(p.x.row(r) + g * in), in, p.round_activation, x + (r * p.num_groups + g) * stride);
  });
  const int64_t panel_size = kPanelOut * stride + kTileOut * kTileRows;
  float* panels = context.scratch->take<float>(context.num_threads() * panel_size);
  const Plan plan{p, kernels, rows, in, stride, group_out, ceil_div(group_out, kTileOut), x, panels, panel_size};
  const int64_t items = plan.tiles_per_group * p.num_groups * ceil_div(rows, kTileRows);
  for_each_item(context, items, static_cast<double>(rows * in) * static_cast<double>(num_outputs(p.weight)),
                [&](int64_t item, int worker) { run_tile(plan, item, worker); });
}

}  // namespace

void linear_avx2(const ExecutionContext& context, const LinearParams& p) { linear(context, p, linear_kernels_avx2()); }
void linear_avx512(const ExecutionContext& context, const LinearParams& p) {
  linear(context, p, linear_kernels_avx512());
}

}  // namespace deepinfer
