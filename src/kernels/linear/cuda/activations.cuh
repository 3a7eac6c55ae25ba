// SPDX-License-Identifier: MIT
// Rows of bf16 as the products see them: fp32, rounded to e4m3 with a scale per 32 columns where asked for, in rows of
// padded_columns(in) with zeros behind.
#pragma once

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/linear/cuda/lane_tile.cuh"
#include "kernels/quantize/cuda/small_formats.cuh"

namespace deepinfer {

struct Activations {
  const bf16* x = nullptr;
  int64_t row_stride = 0, group_columns = 0;  // group g of row r begins at x + r * row_stride + g * group_columns
  int64_t padded = 0;                         // columns of a group in `out`
  bool round = false;
  float* out = nullptr;  // [rows, groups, padded]
};

inline constexpr int kActivationThreads = 256;

// blockIdx: x row, y piece of the columns, z group. A warp has 32 columns.
static __global__ void activations_kernel(Activations a) {
  const int64_t column = int64_t{blockIdx.y} * kActivationThreads + threadIdx.x;
  if (column - threadIdx.x % 32 >= a.padded) return;
  const bf16* x = a.x + blockIdx.x * a.row_stride + blockIdx.z * a.group_columns;
  float value = column < a.group_columns ? to_float(x[column]) : 0.f;
  if (a.round) {
    const Coded c = encode(RowFormat::kFp8Block32, value);
    value = e4m3_to_float(c.code) * e8m0_to_float(c.scale);
  }
  a.out[(int64_t{blockIdx.x} * gridDim.z + blockIdx.z) * a.padded + column] = value;
}

inline void launch_activations(const ExecutionContext& context, const Activations& a, int64_t rows, int groups) {
  const dim3 grid(num_blocks(rows, 1), num_blocks(a.padded, kActivationThreads), static_cast<unsigned>(groups));
  activations_kernel<<<grid, kActivationThreads, 0, stream_of(context)>>>(a);
}

// The device form of a matrix, and its kind.
inline DeviceMatrix device_matrix(const Bf16Matrix& m) {
  return {reinterpret_cast<const uint8_t*>(m.data), nullptr, static_cast<int32_t>(m.out), static_cast<int32_t>(m.in)};
}
inline DeviceMatrix device_matrix(const Fp8Matrix& m) {
  return {m.codes, m.scales, static_cast<int32_t>(m.out), static_cast<int32_t>(m.in)};
}
inline DeviceMatrix device_matrix(const Fp4Matrix& m) {
  return {m.codes, m.scales, static_cast<int32_t>(m.out), static_cast<int32_t>(m.in)};
}

}  // namespace deepinfer
