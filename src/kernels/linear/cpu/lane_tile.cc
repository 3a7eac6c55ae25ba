// SPDX-License-Identifier: MIT
// Tiles over fp32 lanes (levels avx2 and avx512). A few rows walk the packed weights directly; more rows share panels
// of unpacked weights, small enough for the first cache: all rows pass over one panel before the next is unpacked.
#include <algorithm>

#include "base/range.h"
#include "kernels/linear/cpu/linear_kernels.h"
#include "kernels/linear/cpu/weight_tile.h"

namespace deepinfer {
namespace {

constexpr int64_t kPanelOut = 4, kPanelColumns = 1024;
constexpr int64_t kFewRowsMost = 8;

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

int64_t stride_of(int64_t in) { return round_up<int64_t>(in, 32); }
int64_t row_bytes(int64_t in) { return round_up<int64_t>(stride_of(in) * 4, 64); }
// Folded activations of a few rows, or a panel and the sums of a tile.
int64_t workspace_bytes(int64_t in) {
  const int64_t few = kFewRowsMost * stride_of(in),
                panel = kPanelOut * kPanelColumns + (in > kPanelColumns ? kTileRows * kTileOut * 16 : 0);
  return 4 * std::max(few, panel);
}

// An Fp8Matrix's scales are the same for the 32 outputs of a tile, so they are folded into the activation; the other
// formats take it as it is.
void multiply_few(const LinearKernels& k, const WeightTile& tile, const float* const* x, int64_t num_x, float* folded,
                  float* y) {
  const int64_t in = num_inputs(tile.weight), begin = tile.out_begin;
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&tile.weight)) {
    const float* rows[kFewRowsMost] = {};
    for (int64_t m = 0; m < num_x; ++m) {
      rows[m] = folded + m * stride_of(in);
      k.fold_scales(x[m], in, fp8->row_scales(begin), folded + m * stride_of(in));
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

void multiply(const LinearKernels& k, const WeightTile& tile, const uint8_t* const* rows, int64_t num_rows,
              uint8_t* workspace, float* y) {
  const auto* x = reinterpret_cast<const float* const*>(rows);
  float* panel = reinterpret_cast<float*>(workspace);
  if (num_rows <= kFewRowsMost) return multiply_few(k, tile, x, num_rows, panel, y);
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

template <const LinearKernels& (*kKernels)()>
constexpr TileKernels kTileKernels = {
    row_bytes,
    [](const uint16_t* x, int64_t begin, int64_t size, int64_t, bool round, uint8_t* row) {
      kKernels().prepare(x, size, round, reinterpret_cast<float*>(row) + begin);
    },
    workspace_bytes,
    [](const WeightTile& tile, const uint8_t* const* rows, int64_t num_rows, uint8_t* workspace, float* y) {
      multiply(kKernels(), tile, rows, num_rows, workspace, y);
    },
    [](const float* y, int64_t size, uint16_t* out) { kKernels().round_bf16(y, size, out); }};

}  // namespace

const TileKernels& tile_kernels_avx2() { return kTileKernels<linear_kernels_avx2>; }
const TileKernels& tile_kernels_avx512() { return kTileKernels<linear_kernels_avx512>; }

}  // namespace deepinfer
