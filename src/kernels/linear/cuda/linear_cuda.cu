// SPDX-License-Identifier: MIT
#include "kernels/linear/cuda/activations.cuh"
#include "kernels/linear/cuda/lane_tile.cuh"
#include "kernels/linear/linear.h"

namespace deepinfer {
namespace {

struct LinearArguments {
  DeviceMatrix weight;  // of all groups
  const float* x;       // [rows, groups, padded]
  int64_t num_rows, num_groups;
  Bf16Vector bias;
  View<bf16, dim::rows, dim::out> out;
  View<float, dim::rows, dim::out> out_f32;
  bool add;
};

__device__ void store(const LinearArguments& a, int64_t row, int64_t out, float y) {
  if (!a.bias.empty()) y += a.bias[out];
  if (a.out.data) a.out(row, out) = to_bf16(y);
  else a.out_f32(row, out) = a.add ? a.out_f32(row, out) + y : y;
}

// blockIdx: x tile of rows (neighbours read the same weights), y tile of outputs of the group, z group.
template <WeightKind kKind, int kRows>
__global__ void __launch_bounds__(kTileThreads) linear_kernel(LinearArguments a) {
  extern __shared__ float4 shared[];
  const int64_t padded = padded_columns(a.weight.in), group_out = a.weight.out / a.num_groups;
  const int64_t row_begin = int64_t{blockIdx.x} * kRows, out_begin = int64_t{blockIdx.y} * kTileOut;
  const TileRows rows{a.x + blockIdx.z * padded, a.num_groups * padded, nullptr, row_begin,
                      static_cast<int>(a.num_rows - row_begin < kRows ? a.num_rows - row_begin : kRows)};
  DeviceMatrix weight = a.weight;  // rows [0, end of this group): the tile stops there
  weight.out = static_cast<int32_t>((blockIdx.z + 1) * group_out);
  const int64_t first = blockIdx.z * group_out + out_begin;
  float sums[kRows];
  multiply_tile(reinterpret_cast<TileStage<kKind, kRows>*>(shared), weight, first, rows, sums);
  const int64_t out = first + threadIdx.x / kThreadsPerOut;
  if (threadIdx.x % kThreadsPerOut != 0 || out >= weight.out) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (r < rows.num_rows) store(a, row_begin + r, out, sums[r]);
}

template <WeightKind kKind, int kRows>
void launch_tiles(const ExecutionContext& context, const LinearArguments& a) {
  constexpr int64_t kShared = kStages * sizeof(TileStage<kKind, kRows>);
  const dim3 grid(num_blocks(a.num_rows, kRows), num_blocks(a.weight.out / a.num_groups, kTileOut),
                  static_cast<unsigned>(a.num_groups));
  allow_shared_memory(linear_kernel<kKind, kRows>, kShared);
  linear_kernel<kKind, kRows><<<grid, kTileThreads, kShared, stream_of(context)>>>(a);
}

template <WeightKind kKind>
void launch_linear(const ExecutionContext& context, const LinearArguments& a) {
  if (a.num_rows == 1) launch_tiles<kKind, 1>(context, a);
  else if (a.num_rows == 2) launch_tiles<kKind, 2>(context, a);
  else if (a.num_rows <= 4) launch_tiles<kKind, 4>(context, a);
  else launch_tiles<kKind, 8>(context, a);
}

void linear_cuda(const ExecutionContext& context, const LinearParams& p) {
  const int64_t rows = p.x.size[0], in = num_inputs(p.weight), padded = padded_columns(in);
  if (rows == 0) return;
  const Scratch::Frame frame(*context.scratch);
  float* x = context.scratch->take<float>(rows * p.num_groups * padded);
  launch_activations(context, {p.x.data, p.x.stride[0], in, padded, p.round_activation, x}, rows, p.num_groups);
  LinearArguments a{.weight = std::visit([](const auto& m) { return device_matrix(m); }, p.weight),
                    .x = x,
                    .num_rows = rows,
                    .num_groups = p.num_groups,
                    .bias = p.bias,
                    .out = p.out,
                    .out_f32 = p.out_f32,
                    .add = p.add};
  if (std::holds_alternative<Fp8Matrix>(p.weight)) launch_linear<WeightKind::kFp8>(context, a);
  else if (std::holds_alternative<Fp4Matrix>(p.weight)) launch_linear<WeightKind::kFp4>(context, a);
  else launch_linear<WeightKind::kBf16>(context, a);
  context.device->launched("linear");
}

}  // namespace

extern const Launch<LinearParams> kLinearCuda = linear_cuda;

}  // namespace deepinfer
