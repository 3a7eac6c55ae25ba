// SPDX-License-Identifier: MIT
// Inner loops of the linear op over fp32 lanes, one set per instruction level. Plain pointers only, so that files of
// any level may include it. Activations are fp32 rows padded with zeros to a multiple of 32; each sixteen values of
// them and of panels stand woven (lanes_avx512.h), except those that fold_scales() leaves for fp8_rows().
#pragma once

#include <cstdint>

namespace deepinfer {

struct FewRows {
  const float* const* rows;
  int64_t size;
};

// A panel holds columns [k_begin, k_begin + k_size) of some weight rows, unpacked and padded to a multiple of 32.
struct PanelShape {
  int64_t k_begin, k_size, num_out;
  int64_t width() const { return (k_size + 31) / 32 * 32; }
};

// Where a panel's products go: lane sums of [num_x, num_out] are carried from one panel to the next in `sums` (sixteen
// floats each), unless the panel is the first and the last of its row; the last one writes y[m * y_stride + o].
struct PanelSums {
  float* sums;
  bool first, last;
  float* y;
  int64_t y_stride;
};

struct LinearKernels {
  // bf16 columns -> padded fp32 columns; with round also through e4m3 with a power-of-two scale per 32 columns.
  void (*prepare)(const uint16_t* x, int64_t size, bool round, float* out);
  // out[k] = x[k] * scale of block k/32 * 2^8: an activation that has the weights' scale folded in.
  void (*fold_scales)(const float* x, int64_t in, const uint8_t* scales, float* out);
  // y[m * y_stride + o] = dot(weight row o, x row m) for a few activation rows and at most 32 outputs, straight from
  // the packed weights.
  void (*fp8_rows)(const uint8_t* codes, int64_t in, const FewRows& folded_x, int64_t num_out, float* y,
                   int64_t y_stride);
  void (*fp4_rows)(const uint8_t* codes, const uint8_t* scales, int64_t in, const FewRows& x, int64_t num_out, float* y,
                   int64_t y_stride);
  void (*bf16_rows)(const uint16_t* values, int64_t in, const FewRows& x, int64_t num_out, float* y, int64_t y_stride);
  // A panel of weight rows from packed rows of length `in`; codes, scales and values are those of column 0.
  void (*unpack_fp8)(const uint8_t* codes, const uint8_t* scales, int64_t in, const PanelShape& shape, float* out);
  void (*unpack_fp4)(const uint8_t* codes, const uint8_t* scales, int64_t in, const PanelShape& shape, float* out);
  void (*unpack_bf16)(const uint16_t* values, int64_t in, const PanelShape& shape, float* out);
  void (*panel)(const float* const* x, int64_t num_x, const float* panel, const PanelShape& shape,
                const PanelSums& sums);
  void (*round_bf16)(const float* y, int64_t size, uint16_t* out);
};

const LinearKernels& linear_kernels_avx2();
const LinearKernels& linear_kernels_avx512();

// The same with bf16 pairs (lanes_bf16.h): activations are rows of pairs padded with zeros to a multiple of 128. Where
// a function returns bool, false says that some value is not plain and that nothing else it did counts.
struct PairKernels {
  // flags[b] = 0 where all activations of block b are plain.
  void (*prepare)(const uint16_t* x, int64_t size, bool round, uint16_t* out, uint8_t* flags);
  void (*widen)(const uint16_t* x, int64_t in, float* out);  // a row of pairs as LinearKernels wants it
  bool (*flags_clear)(const uint8_t* flags, int64_t size);
  bool (*scales_plain)(const uint8_t* scales, int64_t size);
  void (*fold_scales)(const uint16_t* x, int64_t in, const uint8_t* scales, uint16_t* out);
  void (*fp8_rows)(const uint8_t* codes, int64_t in, const uint16_t* const* folded_x, int64_t num_x, int64_t num_out,
                   float* y, int64_t y_stride);
  void (*fp4_rows)(const uint8_t* codes, const uint8_t* scales, int64_t in, const uint16_t* const* x, int64_t num_x,
                   int64_t num_out, float* y, int64_t y_stride);
  // False also for a number of rows that is not worth it.
  bool (*bf16_rows)(const uint16_t* values, int64_t in, const uint16_t* const* x, int64_t num_x, int64_t num_out,
                    float* y, int64_t y_stride);
  void (*unpack_fp8)(const uint8_t* codes, const uint8_t* scales, int64_t in, const PanelShape& shape, uint16_t* out);
  void (*unpack_fp4)(const uint8_t* codes, const uint8_t* scales, int64_t in, const PanelShape& shape, uint16_t* out);
  bool (*unpack_bf16)(const uint16_t* values, int64_t in, const PanelShape& shape, uint16_t* out);
  void (*panel)(const uint16_t* const* x, int64_t num_x, const uint16_t* panel, const PanelShape& shape,
                const PanelSums& sums);
};

const PairKernels& pair_kernels_bf16();

}  // namespace deepinfer
