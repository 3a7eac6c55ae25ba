// SPDX-License-Identifier: MIT
// Tiles over bf16 pairs (level bf16): as lane_tile.cc with half the bytes and twice the products an instruction. A tile
// with a value that is not plain (lanes_bf16.h) is computed over fp32 lanes, so that the bits never differ.
#include <algorithm>

#include "base/range.h"
#include "kernels/linear/cpu/linear_kernels.h"
#include "kernels/linear/cpu/weight_tile.h"

namespace deepinfer {
namespace {

constexpr int64_t kPanelOut = 8, kPanelColumns = 1024;
constexpr int64_t kLaneRows = 4, kRowsAtOnce = 12;

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

// A prepared row: pairs, then a flag per block.
int64_t num_words(int64_t in) { return round_up<int64_t>(in, 128); }
int64_t num_blocks(int64_t in) { return ceil_div<int64_t>(in, 32); }
const uint8_t* flags_of(const uint16_t* row, int64_t in) {
  return reinterpret_cast<const uint8_t*>(row + num_words(in));
}
int64_t row_bytes(int64_t in) { return 2 * num_words(in) + round_up<int64_t>(num_blocks(in), 64); }
// Folded activations of a few rows, or a panel and the sums of a tile, or fp32 rows and one more.
int64_t workspace_bytes(int64_t in) {
  const int64_t few = 2 * kFewRows * num_words(in),
                panel = 2 * kPanelOut * kPanelColumns + (in > kPanelColumns ? kTileRows * kTileOut * 64 : 0);
  return std::max({few, panel, 4 * (kLaneRows + 1) * num_words(in)});
}

void prepare(const uint16_t* x, int64_t begin, int64_t size, int64_t in, bool round, bool, uint8_t* row) {
  auto* pairs = reinterpret_cast<uint16_t*>(row);
  pair_kernels_bf16().prepare(x, size, round, pairs + begin, row + 2 * num_words(in) + begin / 32);
  if (begin + size == in) std::fill(pairs + round_up<int64_t>(in, 32), pairs + num_words(in), uint16_t{0});
}

bool weight_plain(const WeightTile& tile) {
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&tile.weight))
    return pair_kernels_bf16().scales_plain(fp8->row_scales(tile.out_begin), fp8->scale_columns());
  if (const auto* fp4 = std::get_if<Fp4Matrix>(&tile.weight))
    return pair_kernels_bf16().scales_plain(fp4->row_scales(tile.out_begin), tile.out_size * fp4->scale_columns());
  return true;  // found out when it is unpacked
}

// At most kLaneRows rows over fp32 lanes.
void multiply_in_lanes(const LinearKernels& k, const WeightTile& tile, const uint16_t* const* rows, int64_t num_rows,
                       float* workspace, float* y) {
  const int64_t in = num_inputs(tile.weight), begin = tile.out_begin;
  const auto* fp8 = std::get_if<Fp8Matrix>(&tile.weight);
  float* wide = workspace + kLaneRows * num_words(in);
  const float* x[kLaneRows] = {};
  for (int64_t m = 0; m < num_rows; ++m) {
    float* row = workspace + m * num_words(in);
    pair_kernels_bf16().widen(rows[m], in, fp8 ? wide : row);
    if (fp8) k.fold_scales(wide, in, fp8->row_scales(begin), row);
    x[m] = row;
  }
  const FewRows few{x, num_rows};
  if (fp8) k.fp8_rows(fp8->row(begin), in, few, tile.out_size, y, kTileOut);
  else if (const auto* fp4 = std::get_if<Fp4Matrix>(&tile.weight))
    k.fp4_rows(fp4->row(begin), fp4->row_scales(begin), in, few, tile.out_size, y, kTileOut);
  else k.bf16_rows(words(std::get<Bf16Matrix>(tile.weight).row(begin)), in, few, tile.out_size, y, kTileOut);
}

bool multiply_few(const WeightTile& tile, const uint16_t* const* x, int64_t num_x, uint16_t* folded, float* y) {
  const PairKernels& k = pair_kernels_bf16();
  const int64_t in = num_inputs(tile.weight), begin = tile.out_begin;
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&tile.weight)) {
    const uint16_t* rows[kFewRows] = {};
    for (int64_t m = 0; m < num_x; ++m) {
      rows[m] = folded + m * num_words(in);
      k.fold_scales(x[m], in, fp8->row_scales(begin), folded + m * num_words(in));
    }
    k.fp8_rows(fp8->row(begin), in, rows, num_x, tile.out_size, y, kTileOut);
  } else if (const auto* fp4 = std::get_if<Fp4Matrix>(&tile.weight)) {
    k.fp4_rows(fp4->row(begin), fp4->row_scales(begin), in, x, num_x, tile.out_size, y, kTileOut);
  } else {
    return k.bf16_rows(words(std::get<Bf16Matrix>(tile.weight).row(begin)), in, x, num_x, tile.out_size, y, kTileOut);
  }
  return true;
}

bool unpack(const WeightMatrix& weight, int64_t begin, const PanelShape& shape, uint16_t* panel) {
  const PairKernels& k = pair_kernels_bf16();
  const int64_t in = num_inputs(weight);
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&weight))
    k.unpack_fp8(fp8->row(begin), fp8->row_scales(begin), in, shape, panel);
  else if (const auto* fp4 = std::get_if<Fp4Matrix>(&weight))
    k.unpack_fp4(fp4->row(begin), fp4->row_scales(begin), in, shape, panel);
  else return k.unpack_bf16(words(std::get<Bf16Matrix>(weight).row(begin)), in, shape, panel);
  return true;
}

// Asks for the packed bytes of columns [k_begin, k_begin + k_size) of a weight row while others are being multiplied:
// the rows of a panel lie far apart, and no prefetcher of the machine follows eight short runs.
void fetch_row(const WeightMatrix& weight, int64_t row, int64_t k_begin, int64_t k_size) {
  const auto* fp8 = std::get_if<Fp8Matrix>(&weight);
  const auto* fp4 = std::get_if<Fp4Matrix>(&weight);
  const uint8_t* bytes = fp8   ? fp8->row(row) + k_begin
                         : fp4 ? fp4->row(row) + k_begin / 2
                               : reinterpret_cast<const uint8_t*>(std::get<Bf16Matrix>(weight).row(row) + k_begin);
  const int64_t size = fp8 ? k_size : fp4 ? k_size / 2 : 2 * k_size;
  for (int64_t i = 0; i < size; i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

// Rows [first, last) of the panel after (begin, o): its neighbour, the first of the next columns, or of the next tile.
void fetch_next_panel(const WeightTile& tile, int64_t begin, int64_t o, int64_t first, int64_t last) {
  const int64_t in = num_inputs(tile.weight);
  int64_t row = tile.out_begin + o + kPanelOut;
  if (o + kPanelOut >= tile.out_size) {
    begin = begin + kPanelColumns < in ? begin + kPanelColumns : 0;
    row = begin > 0 ? tile.out_begin : tile.out_begin + tile.out_size;
  }
  for (int64_t r = row + first; r < std::min(row + last, num_outputs(tile.weight)); ++r)
    fetch_row(tile.weight, r, begin, std::min(kPanelColumns, in - begin));
}

bool multiply_panels(const WeightTile& tile, const uint16_t* const* x, int64_t num_x, uint8_t* workspace, float* y) {
  const int64_t in = num_inputs(tile.weight);
  auto* panel = reinterpret_cast<uint16_t*>(workspace);
  auto* sums = reinterpret_cast<float*>(panel + kPanelOut * kPanelColumns);
  for (int64_t begin = 0; begin < in; begin += kPanelColumns) {
    for (int64_t o = 0; o < tile.out_size; o += kPanelOut) {
      const PanelShape shape{begin, std::min(kPanelColumns, in - begin), std::min(kPanelOut, tile.out_size - o)};
      if (!unpack(tile.weight, tile.out_begin + o, shape, panel)) return false;
      // The next panel's bytes are asked for bit by bit, between the rows: all at once they would hold up everything.
      for (int64_t m = 0, part = 0; m < num_x; m += kRowsAtOnce, ++part) {
        fetch_next_panel(tile, begin, o, 3 * part, 3 * part + 3);
        pair_kernels_bf16().panel(x + m, std::min(kRowsAtOnce, num_x - m), panel, shape,
                                  {sums + (o * kTileRows + m * kPanelOut) * 16, begin == 0, begin + kPanelColumns >= in,
                                   y + m * kTileOut + o, kTileOut});
      }
    }
  }
  return true;
}

void multiply(const WeightTile& tile, const uint8_t* const* rows, int64_t num_rows, uint8_t* workspace, float* y) {
  const auto* x = reinterpret_cast<const uint16_t* const*>(rows);
  const int64_t in = num_inputs(tile.weight);
  bool plain = weight_plain(tile);
  for (int64_t m = 0; m < num_rows && plain; ++m)
    plain = pair_kernels_bf16().flags_clear(flags_of(x[m], in), num_blocks(in));
  const bool few = num_rows <= kFewRows;
  if (plain && few && multiply_few(tile, x, num_rows, reinterpret_cast<uint16_t*>(workspace), y)) return;
  if (plain && !few && multiply_panels(tile, x, num_rows, workspace, y)) return;
  for (int64_t m = 0; m < num_rows; m += kLaneRows)
    multiply_in_lanes(linear_kernels_avx512(), tile, x + m, std::min(kLaneRows, num_rows - m),
                      reinterpret_cast<float*>(workspace), y + m * kTileOut);
}

}  // namespace

const TileKernels& tile_kernels_bf16() {
  static const TileKernels kTileKernels = {
      row_bytes, prepare, workspace_bytes, multiply, linear_kernels_avx512().round_bf16, 2};
  return kTileKernels;
}

}  // namespace deepinfer
