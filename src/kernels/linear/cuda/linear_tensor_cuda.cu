// SPDX-License-Identifier: MIT
#include "kernels/linear/cuda/activations.cuh"
#include "kernels/linear/cuda/linear_few.h"
#include "kernels/linear/cuda/linear_tensor.h"
#include "kernels/linear/cuda/tensor_activations.cuh"
#include "kernels/linear/linear.h"

namespace deepinfer {
namespace {

struct TensorLinear {
  DeviceMatrix weight;  // of all groups
  const bf16* x;        // [rows, groups, padded]
  int64_t num_rows, num_groups;
  Bf16Vector bias;
  View<bf16, dim::rows, dim::out> out;
  View<float, dim::rows, dim::out> out_f32;
  bool add;
};

// blockIdx: x tile of rows (neighbours read the same weights), y tile of outputs of the group, z group.
template <WeightKind kKind, int kOutWarps, int kSplit, int kTokens>
__global__ void __launch_bounds__(32 * kOutWarps * kSplit) tensor_linear_kernel(TensorLinear a) {
  using Tile = TensorTile<kKind, kOutWarps, kSplit, kTokens>;
  extern __shared__ uint4 shared[];
  const int64_t padded = tensor_padded(a.weight.in), group_out = a.weight.out / a.num_groups;
  const int64_t row_begin = int64_t{blockIdx.x} * kTokens, left = a.num_rows - row_begin;
  const TensorRows rows{a.x + blockIdx.z * padded, a.num_groups * padded, nullptr, row_begin,
                        static_cast<int>(left < kTokens ? left : kTokens)};
  DeviceMatrix weight = a.weight;  // rows [0, end of this group): the tile stops there
  weight.out = static_cast<int32_t>((blockIdx.z + 1) * group_out);
  const int64_t out_begin = blockIdx.z * group_out + int64_t{blockIdx.y} * Tile::kOut;
  typename Tile::Sums sums;
  multiply_tensor_tile<kKind, Tile>(reinterpret_cast<uint8_t*>(shared), weight, out_begin, rows, sums);
  for_each_sum<Tile>(sums, rows.num_rows, [&](int o, int r, float y) {
    const int64_t out = out_begin + o, row = row_begin + r;
    if (out >= weight.out) return;
    if (!a.bias.empty()) y += a.bias[out];
    if (a.out.data) a.out(row, out) = to_bf16(y);
    else a.out_f32(row, out) = a.add ? a.out_f32(row, out) + y : y;
  });
}

template <WeightKind kKind, int kOutWarps, int kSplit, int kTokens>
void launch_tiles(const ExecutionContext& context, const TensorLinear& a) {
  using Tile = TensorTile<kKind, kOutWarps, kSplit, kTokens>;
  const dim3 grid(num_blocks(a.num_rows, kTokens), num_blocks(a.weight.out / a.num_groups, Tile::kOut),
                  static_cast<unsigned>(a.num_groups));
  allow_shared_memory(tensor_linear_kernel<kKind, kOutWarps, kSplit, kTokens>, Tile::kSharedBytes);
  tensor_linear_kernel<kKind, kOutWarps, kSplit, kTokens>
      <<<grid, Tile::kThreads, Tile::kSharedBytes, stream_of(context)>>>(a);
}

// Few outputs: two warps of them and four slices of the columns, so that more multiprocessors have work. The choice
// depends on the matrix alone; the number of rows chooses the tokens of a tile, which no sum depends on.
template <WeightKind kKind>
void launch_linear(const ExecutionContext& context, const TensorLinear& a) {
  constexpr int64_t kFewOutputs = 4096;
  const bool is_small = a.num_rows <= 8;
  if constexpr (kKind != WeightKind::kFp4)  // the model has FP4 in experts alone
    if (a.weight.out < kFewOutputs)
      return is_small ? launch_tiles<kKind, 2, 4, 8>(context, a) : launch_tiles<kKind, 2, 4, 64>(context, a);
  if (is_small) return launch_tiles<kKind, 4, 1, 8>(context, a);
  if constexpr (kKind == WeightKind::kFp8)
    if (a.num_rows > 64) return launch_tiles<kKind, 4, 1, 128>(context, a);
  launch_tiles<kKind, 4, 1, 64>(context, a);
}

// Any matrix.
void linear_tiles(const ExecutionContext& context, const LinearParams& p) {
  const int64_t rows = p.x.size[0], in = num_inputs(p.weight), padded = tensor_padded(in);
  const bool is_fp4 = std::holds_alternative<Fp4Matrix>(p.weight);
  bf16* x = context.scratch->take<bf16>(rows * p.num_groups * padded);
  launch_tensor_activations(context, {p.x.data, p.x.stride[0], in, padded, p.round_activation, is_fp4, x}, rows,
                            p.num_groups);
  const TensorLinear a{.weight = std::visit([](const auto& m) { return device_matrix(m); }, p.weight),
                       .x = x,
                       .num_rows = rows,
                       .num_groups = p.num_groups,
                       .bias = p.bias,
                       .out = p.out,
                       .out_f32 = p.out_f32,
                       .add = p.add};
  if (is_fp4) launch_linear<WeightKind::kFp4>(context, a);
  else if (std::holds_alternative<Fp8Matrix>(p.weight)) launch_linear<WeightKind::kFp8>(context, a);
  else launch_linear<WeightKind::kBf16>(context, a);
}

void linear_tensor_cuda(const ExecutionContext& context, const LinearParams& p) {
  if (p.x.size[0] == 0) return;
  const Scratch::Frame frame(*context.scratch);
  if (!fits_warpgroups(p)) linear_tiles(context, p);
  else if (fits_stream(p)) linear_stream(context, p);
  else if (fits_narrow(p)) linear_narrow(context, p);
  else if (fits_few(p)) linear_few(context, p);
  else linear_wide(context, p);
  context.device->launched("linear");
}

}  // namespace

extern const Launch<LinearParams> kLinearTensorCuda = linear_tensor_cuda;

}  // namespace deepinfer
