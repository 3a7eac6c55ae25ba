// SPDX-License-Identifier: MIT
// Tiles over fp32 lanes (levels avx2 and avx512). A few rows walk the packed weights directly; more rows share panels
// of unpacked weights: at level avx2 small enough for the first cache, so that all rows pass over one panel before the
// next is unpacked; at level avx512 planes of all outputs of the tile (linear_planes.h), for the second. Weights that
// stand in planes already are read so by any number of rows.
#include <algorithm>

#include "base/range.h"
#include "kernels/linear/cpu/linear_kernels.h"
#include "kernels/linear/cpu/linear_planes.h"
#include "kernels/linear/cpu/weight_tile.h"
#include "tensor/plane_layout.h"

namespace deepinfer {
namespace {

constexpr int64_t kPanelOut = 4, kPanelColumns = 1024;

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

int64_t stride_of(int64_t in) { return round_up<int64_t>(in, 32); }
int64_t row_bytes(int64_t in) { return round_up<int64_t>(stride_of(in) * 4, 64); }
// Rows of a power of two would meet in a few sets of the first cache: folded rows stand a line further apart.
int64_t folded_stride(int64_t in) { return stride_of(in) + 16; }
// Folded activations of a few rows, or a panel and the sums of a tile.
int64_t workspace_bytes(int64_t in) {
  const int64_t few = kFewRows * folded_stride(in),
                panel = kPanelOut * kPanelColumns + (in > kPanelColumns ? kTileRows * kTileOut * 16 : 0);
  return 4 * std::max(few, panel);
}

// Room for a tile brought back into rows comes first in the workspace of level avx2: codes, then scales.
int64_t rows_bytes(int64_t in) { return round_up<int64_t>(kTileOut * in + in, 64); }
int64_t workspace_bytes_avx2(int64_t in) { return rows_bytes(in) + workspace_bytes(in); }

// An Fp8Matrix's scales are the same for the 32 outputs of a tile, so they are folded into the activation; the other
// formats take it as it is.
void multiply_few(const LinearKernels& k, const WeightTile& tile, const float* const* x, int64_t num_x, float* folded,
                  float* y) {
  const int64_t in = num_inputs(tile.weight), begin = tile.out_begin;
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&tile.weight)) {
    const float* rows[kFewRows] = {};
    for (int64_t m = 0; m < num_x; ++m) {
      rows[m] = folded + m * folded_stride(in);
      k.fold_scales(x[m], in, fp8->row_scales(begin), folded + m * folded_stride(in));
    }
    k.fp8_rows(fp8->row(begin), in, {rows, num_x}, tile.out_size, y, kTileOut);
  } else if (const auto* fp4 = std::get_if<Fp4Matrix>(&tile.weight)) {
    k.fp4_rows(fp4->row(begin), fp4->row_scales(begin), in, {x, num_x}, tile.out_size, y, kTileOut);
  } else {
    k.bf16_rows(words(std::get<Bf16Matrix>(tile.weight).row(begin)), in, {x, num_x}, tile.out_size, y, kTileOut);
  }
}

void unpack(const LinearKernels& k, const WeightMatrix& weight, int64_t begin, const PanelShape& shape, float* panel) {
  const int64_t in = num_inputs(weight);
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&weight))
    k.unpack_fp8(fp8->row(begin), fp8->row_scales(begin), in, shape, panel);
  else if (const auto* fp4 = std::get_if<Fp4Matrix>(&weight))
    k.unpack_fp4(fp4->row(begin), fp4->row_scales(begin), in, shape, panel);
  else k.unpack_bf16(words(std::get<Bf16Matrix>(weight).row(begin)), in, shape, panel);
}

void multiply_panels(const LinearKernels& k, const WeightTile& tile, const float* const* x, int64_t num_rows,
                     float* panel, float* y) {
  const int64_t in = num_inputs(tile.weight);
  float* sums = panel + kPanelOut * kPanelColumns;
  for (int64_t begin = 0; begin < in; begin += kPanelColumns) {
    for (int64_t o = 0; o < tile.out_size; o += kPanelOut) {
      const PanelShape shape{begin, std::min(kPanelColumns, in - begin), std::min(kPanelOut, tile.out_size - o)};
      unpack(k, tile.weight, tile.out_begin + o, shape, panel);
      k.panel(x, num_rows, panel, shape,
              {sums + o * kTileRows * 16, begin == 0, begin + kPanelColumns >= in, y + o, kTileOut});
    }
  }
}

// Rows with planes: the woven row, then its planes, a line further than a power of two would put the next row.
int64_t plane_row_bytes(int64_t in) { return row_bytes(in) + 4 * stride_of(in) + 64; }
// A panel, then the sums of a tile.
int64_t plane_workspace_bytes(int64_t in) {
  return std::max(4 * kFewRows * folded_stride(in), 76 * plane_columns(in) + 4 * kPlanes * kPlaneOut * kTileRows);
}

void prepare_planes(const uint16_t* x, int64_t begin, int64_t size, int64_t in, bool round, bool planes, uint8_t* row) {
  auto* woven = reinterpret_cast<float*>(row);
  linear_kernels_avx512().prepare(x, size, round, woven + begin);
  if (planes) plane_kernels_avx512().spread(woven, begin, size, in, reinterpret_cast<float*>(row + row_bytes(in)));
}

// A panel of the tile's columns, turned here unless it stands so.
PlanePanel open_panel(const WeightTile& tile, const PlaneShape& shape, const PanelMemory& memory) {
  const PlaneKernels& k = plane_kernels_avx512();
  const int64_t begin = tile.out_begin;
  const bool is_last = begin + tile.out_size == num_outputs(tile.weight);
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&tile.weight))
    return fp8->layout == WeightLayout::kPlanes
               ? k.open_fp8(fp8->row(begin), fp8->row_scales(begin), shape, is_last, memory)
               : k.turn_fp8(fp8->row(begin), fp8->row_scales(begin), shape, memory);
  if (const auto* fp4 = std::get_if<Fp4Matrix>(&tile.weight))
    return fp4->layout == WeightLayout::kPlanes
               ? k.open_fp4(fp4->row(begin), fp4->row_scales(begin), shape, is_last, memory)
               : k.turn_fp4(fp4->row(begin), fp4->row_scales(begin), shape, memory);
  return k.turn_bf16(words(std::get<Bf16Matrix>(tile.weight).row(begin)), shape, memory);
}

void multiply_planes(const WeightTile& tile, const float* const* x, int64_t num_rows, uint8_t* workspace, float* y) {
  static_assert(kPlaneOut == kTileOut);
  const PlaneKernels& k = plane_kernels_avx512();
  const PlaneKernels::Multiply multiply[] = {k.multiply_bf16, k.multiply_fp8, k.multiply_fp4};
  const int64_t in = num_inputs(tile.weight), columns = plane_columns(in);
  auto* scales = reinterpret_cast<float*>(workspace + 64 * columns);
  const PanelMemory memory{workspace, scales, scales + columns};
  float* sums = memory.plane + 2 * columns;
  const float* planes[kTileRows];  // as many as there are rows are set
  for (int64_t m = 0; m < num_rows; ++m) planes[m] = x[m] + row_bytes(in) / 4;
  for (int64_t begin = 0; begin < in; begin += columns) {
    const PlaneShape shape{begin, std::min(columns, in - begin), tile.out_size, in};
    multiply[tile.weight.index()](planes, num_rows, open_panel(tile, shape, memory), shape, memory.plane, sums);
  }
  k.fold(sums, num_rows, y);
}

void prepare_lanes(const uint16_t* x, int64_t begin, int64_t size, int64_t, bool round, bool, uint8_t* row) {
  linear_kernels_avx2().prepare(x, size, round, reinterpret_cast<float*>(row) + begin);
}

// The outputs of a tile in planes, in rows: no loop of level avx2 reads planes.
WeightMatrix in_rows(const WeightTile& tile, uint8_t* memory) {
  const int64_t in = num_inputs(tile.weight), group = tile.out_begin / kTileOut;
  uint8_t* scales = memory + kTileOut * in;
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&tile.weight)) {
    turn_group(*fp8, group, memory);
    return Fp8Matrix{memory, fp8->row_scales(tile.out_begin), kTileOut, in};
  }
  turn_group(std::get<Fp4Matrix>(tile.weight), group, memory, scales);
  return Fp4Matrix{memory, scales, kTileOut, in};
}

void multiply_avx2(const WeightTile& tile, const uint8_t* const* rows, int64_t num_rows, uint8_t* workspace, float* y) {
  const auto* x = reinterpret_cast<const float* const*>(rows);
  if (layout_of(tile.weight) == WeightLayout::kPlanes) {
    const WeightMatrix turned = in_rows(tile, workspace);
    return multiply_avx2({turned, 0, tile.out_size}, rows, num_rows, workspace, y);
  }
  auto* work = reinterpret_cast<float*>(workspace + rows_bytes(num_inputs(tile.weight)));
  if (num_rows <= kFewRows) multiply_few(linear_kernels_avx2(), tile, x, num_rows, work, y);
  else multiply_panels(linear_kernels_avx2(), tile, x, num_rows, work, y);
}
void multiply_avx512(const WeightTile& tile, const uint8_t* const* rows, int64_t num_rows, uint8_t* workspace,
                     float* y) {
  const auto* x = reinterpret_cast<const float* const*>(rows);
  auto* work = reinterpret_cast<float*>(workspace);
  if (num_rows <= kFewRows && layout_of(tile.weight) == WeightLayout::kRows)
    multiply_few(linear_kernels_avx512(), tile, x, num_rows, work, y);
  else multiply_planes(tile, x, num_rows, workspace, y);
}

}  // namespace

const TileKernels& tile_kernels_avx2() {
  static const TileKernels kTileKernels = {
      row_bytes, prepare_lanes, workspace_bytes_avx2, multiply_avx2, linear_kernels_avx2().round_bf16, 2};
  return kTileKernels;
}
const TileKernels& tile_kernels_avx512() {
  static const TileKernels kTileKernels = {
      plane_row_bytes, prepare_planes, plane_workspace_bytes, multiply_avx512, linear_kernels_avx512().round_bf16, 1};
  return kTileKernels;
}

}  // namespace deepinfer
