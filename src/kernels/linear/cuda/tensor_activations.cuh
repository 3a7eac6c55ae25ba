// SPDX-License-Identifier: MIT
// Rows of bf16 for tensor_tile.cuh: rounded to e4m3 with a scale per 32 columns where asked for (exact in bf16), padded
// with zeros, and in the order that FP4 weights are unpacked in where they meet those.
#pragma once

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/linear/cuda/tensor_tile.cuh"
#include "kernels/quantize/cuda/small_formats.cuh"

namespace deepinfer {

struct TensorActivations {
  const bf16* x = nullptr;
  int64_t row_stride = 0, group_columns = 0;  // group g of row r begins at x + r * row_stride + g * group_columns
  int64_t padded = 0;                         // columns of a group in `out`
  bool round = false, for_fp4 = false;
  bf16* out = nullptr;  // [rows, groups, padded]
};

__host__ __device__ constexpr int64_t tensor_padded(int64_t in) {
  return (in + kTensorColumns - 1) / kTensorColumns * kTensorColumns;
}

static __global__ void tensor_activations_kernel(TensorActivations a) {
  const int64_t column = int64_t{blockIdx.y} * kTensorColumns + threadIdx.x;
  const bf16* x = a.x + blockIdx.x * a.row_stride + blockIdx.z * a.group_columns;
  bf16 value = column < a.group_columns ? x[column] : bf16{};
  if (a.round) value = decode(RowFormat::kFp8Block32, encode(RowFormat::kFp8Block32, to_float(value)));
  const int place = a.for_fp4 ? fp4_place(static_cast<int>(threadIdx.x)) : static_cast<int>(threadIdx.x);
  a.out[(int64_t{blockIdx.x} * gridDim.z + blockIdx.z) * a.padded + int64_t{blockIdx.y} * kTensorColumns + place] = value;
}

inline void launch_tensor_activations(const ExecutionContext& context, const TensorActivations& a, int64_t rows,
                                      int groups) {
  const dim3 grid(num_blocks(rows, 1), num_blocks(a.padded, kTensorColumns), static_cast<unsigned>(groups));
  tensor_activations_kernel<<<grid, kTensorColumns, 0, stream_of(context)>>>(a);
}

}  // namespace deepinfer
