// SPDX-License-Identifier: MIT
// experts_cuda.cu on tensor cores.
#include "kernels/experts/cuda/expert_table.cuh"
#include "kernels/experts/cuda/experts_tensor.h"
#include "kernels/linear/cuda/tensor_activations.cuh"
#include "kernels/linear/cuda/warpgroup_product.cuh"

namespace deepinfer {
namespace {

constexpr int kOutWarps = 4;
template <WeightKind kKind, int kTokens>
using Tile = TensorTile<kKind, kOutWarps, 1, kTokens>;

template <size_t kMax>
struct TensorExperts {
  ExpertTable<kMax> table;
  const bf16* x;  // [tokens, padded(hidden)]
  bf16* h;        // [assignments, padded(inner)]
  bool for_fp4;
};

// Up to kTokens assignments from `first` on: 64 hidden columns (two scale blocks) of each into h.
template <WeightKind kKind, int kTokens, size_t kMax>
__device__ void make_hidden(const TensorExperts<kMax>& a, uint8_t* shared, int64_t first, int num_rows) {
  using T = Tile<kKind, kTokens>;
  const ExpertTable<kMax>& table = a.table;
  const int e = static_cast<int>(blockIdx.y);
  const int64_t out_begin = int64_t{blockIdx.x} * T::kOut, padded = tensor_padded(table.inner);
  const TensorRows rows{a.x, tensor_padded(table.hidden), table.token.data, first, num_rows};
  typename T::Sums gate, up;
  multiply_tensor_tile<kKind, T>(shared, table.w1(e), out_begin, rows, gate);
  multiply_tensor_tile<kKind, T>(shared, table.w3(e), out_begin, rows, up);
  __syncthreads();
  auto* hidden = reinterpret_cast<float(*)[T::kOut + 1]>(shared);  // [kTokens, kOut], over the stages
  static_assert(kTokens * (T::kOut + 1) * 4 <= T::kSharedBytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4,
            c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int tile = 0; tile < T::kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 8 * tile + 2 * c + i % 2;
      if (r < num_rows)
        hidden[r][16 * warp + g + i / 2 * 8] =
            to_float(swiglu(to_bf16(gate[tile][i]), to_bf16(up[tile][i]), table.swiglu_limit,
                            table.weight.data ? &table.weight(first + r) : nullptr));
    }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % 32, place = a.for_fp4 ? fp4_place(column) : column;
  for (int piece = static_cast<int>(threadIdx.x) / 32; piece < 2 * num_rows; piece += T::kThreads / 32) {
    const int r = piece / 2, begin = piece % 2 * 32;
    const bf16 value = decode(RowFormat::kFp8Block32, encode(RowFormat::kFp8Block32, hidden[r][begin + column]));
    a.h[(first + r) * padded + out_begin + begin + place] = value;
  }
  __syncthreads();
}

template <WeightKind kKind, int kTokens, size_t kMax>
__device__ void make_out(const TensorExperts<kMax>& a, uint8_t* shared, int64_t first, int num_rows) {
  using T = Tile<kKind, kTokens>;
  const ExpertTable<kMax>& table = a.table;
  const int64_t out_begin = int64_t{blockIdx.x} * T::kOut;
  const TensorRows rows{a.h, tensor_padded(table.inner), nullptr, first, num_rows};
  typename T::Sums sums;
  multiply_tensor_tile<kKind, T>(shared, table.w2(static_cast<int>(blockIdx.y)), out_begin, rows, sums);
  for_each_sum<T>(sums, num_rows, [&](int o, int r, float y) {
    if (out_begin + o < table.hidden) table.out(first + r, out_begin + o) = to_bf16(y);
  });
}

// blockIdx: x tile of outputs, y expert.
template <WeightKind kKind, bool kIsHidden, size_t kMax>
__global__ void __launch_bounds__(32 * kOutWarps) tensor_experts_kernel(const __grid_constant__ TensorExperts<kMax> a) {
  extern __shared__ uint4 memory[];
  uint8_t* shared = reinterpret_cast<uint8_t*>(memory);
  const int64_t begin = a.table.begin(blockIdx.y), end = a.table.begin(blockIdx.y + 1);
  if (end - begin <= 8) {
    if (begin == end) return;
    const int num_rows = static_cast<int>(end - begin);
    if constexpr (kIsHidden) make_hidden<kKind, 8>(a, shared, begin, num_rows);
    else make_out<kKind, 8>(a, shared, begin, num_rows);
    return;
  }
  for (int64_t first = begin; first < end; first += 64) {
    const int num_rows = static_cast<int>(end - first < 64 ? end - first : 64);
    if constexpr (kIsHidden) make_hidden<kKind, 64>(a, shared, first, num_rows);
    else make_out<kKind, 64>(a, shared, first, num_rows);
  }
}

template <WeightKind kKind, size_t kMax>
void launch_experts(const ExecutionContext& context, const TensorExperts<kMax>& a, int64_t num_experts, int64_t rows) {
  constexpr int kOut = Tile<kKind, 64>::kOut;
  const int64_t small = Tile<kKind, 8>::kSharedBytes, large = Tile<kKind, 64>::kSharedBytes;
  const int64_t shared = rows <= 8 || large < small ? small : large;  // more blocks at once where no expert has many
  const dim3 hidden_grid(num_blocks(tensor_padded(a.table.inner), kOut), num_blocks(num_experts, 1));
  const dim3 out_grid(num_blocks(a.table.hidden, kOut), num_blocks(num_experts, 1));
  allow_shared_memory(tensor_experts_kernel<kKind, true, kMax>, shared);
  allow_shared_memory(tensor_experts_kernel<kKind, false, kMax>, shared);
  tensor_experts_kernel<kKind, true, kMax><<<hidden_grid, 32 * kOutWarps, shared, stream_of(context)>>>(a);
  tensor_experts_kernel<kKind, false, kMax><<<out_grid, 32 * kOutWarps, shared, stream_of(context)>>>(a);
}

template <size_t kMax>
void run_experts(const ExecutionContext& context, const ExpertsParams& p) {
  TensorExperts<kMax> a{};
  a.for_fp4 = fill_expert_table(p, a.table);
  const int64_t padded = tensor_padded(a.table.hidden), num_experts = static_cast<int64_t>(p.experts.size());
  bf16* x = context.scratch->take<bf16>(p.x.size[0] * padded);
  a.x = x;
  a.h = context.scratch->take<bf16>(p.out.size[0] * tensor_padded(a.table.inner));
  launch_tensor_activations(context, {p.x.data, p.x.stride[0], a.table.hidden, padded, true, a.for_fp4, x}, p.x.size[0],
                            1);
  if (a.for_fp4) launch_experts<WeightKind::kFp4>(context, a, num_experts, p.x.size[0]);
  else launch_experts<WeightKind::kFp8>(context, a, num_experts, p.x.size[0]);
}

// Experts of any widths.
void experts_tiles(const ExecutionContext& context, const ExpertsParams& p) {
  if (p.experts.size() == 1) run_experts<1>(context, p);
  else run_experts<kExpertsMax>(context, p);
}

void experts_tensor_cuda(const ExecutionContext& context, const ExpertsParams& p) {
  if (p.out.num_elements() == 0 || p.x.size[0] == 0) return;
  const Scratch::Frame frame(*context.scratch);
  if (!fit_warpgroups(p)) experts_tiles(context, p);
  else if (stream_tile_rows(p) <= (p.experts.size() == 1 ? kStreamRows : kStreamExpertRows)) experts_stream(context, p);
  else experts_wide(context, p);
  context.device->launched("experts");
}

}  // namespace

bool fit_warpgroups(const ExpertsParams& p) {
  const auto fits = [](const WeightMatrix& w) {
    const DeviceMatrix m = std::visit([](const auto& matrix) { return device_matrix(matrix); }, w);
    return !m.codes || (m.in % 256 == 0 && reinterpret_cast<uintptr_t>(m.codes) % 16 == 0 &&
                        reinterpret_cast<uintptr_t>(m.scales) % 8 == 0);
  };
  return kHasWarpgroups && p.experts.size() <= kExpertsMax && std::all_of(p.experts.begin(), p.experts.end(), [&](const ExpertMatrices& e) {
           return fits(e.w1) && fits(e.w3) && fits(e.w2);
         });
}

extern const Launch<ExpertsParams> kExpertsTensorCuda = experts_tensor_cuda;

}  // namespace deepinfer
