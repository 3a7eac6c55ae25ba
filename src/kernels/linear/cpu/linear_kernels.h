// SPDX-License-Identifier: MIT
// Inner loops of the linear op, one set per instruction level. Plain pointers only, so that files of any level may
// include it. Activations are fp32 rows padded with zeros to a multiple of 32 (`x_stride`).
#pragma once

#include <cstdint>

namespace deepinfer {

struct FewRows {
  const float* data;
  int64_t stride, size;
};

struct LinearKernels {
  // bf16 row -> padded fp32 row; with round also through e4m3 with a power-of-two scale per 32 columns.
  void (*prepare_row)(const uint16_t* x, int64_t in, bool round, float* out);
  // out[k] = x[k] * scale of block k/32 * 2^8: an activation that has the weights' scale folded in.
  void (*fold_scales)(const float* x, int64_t in, const uint8_t* scales, float* out);
  // y[m * y_stride + o] = dot(weight row o, x row m) for a few activation rows, straight from the packed weights.
  void (*fp8_rows)(const uint8_t* codes, int64_t in, const FewRows& folded_x, int64_t num_out, float* y,
                   int64_t y_stride);
  void (*fp4_rows)(const uint8_t* codes, const uint8_t* scales, int64_t in, const FewRows& x, int64_t num_out, float* y,
                   int64_t y_stride);
  void (*bf16_rows)(const uint16_t* values, int64_t in, const FewRows& x, int64_t num_out, float* y, int64_t y_stride);
  // num_out weight rows as padded fp32 rows.
  void (*unpack_fp8)(const uint8_t* codes, const uint8_t* scales, int64_t in, int64_t num_out, float* out);
  void (*unpack_fp4)(const uint8_t* codes, const uint8_t* scales, int64_t in, int64_t num_out, float* out);
  void (*unpack_bf16)(const uint16_t* values, int64_t in, int64_t num_out, float* out);
  // y[m * y_stride + o] = dot(x row m, panel row o) over `stride` columns, the panel's row length.
  void (*panel)(const float* x, int64_t num_x, int64_t x_stride, const float* panel, int64_t num_out, int64_t stride,
                float* y, int64_t y_stride);
};

const LinearKernels& linear_kernels_avx2();
const LinearKernels& linear_kernels_avx512();

}  // namespace deepinfer
