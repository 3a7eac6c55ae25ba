// SPDX-License-Identifier: MIT
// Grouped products of the experts: one launch makes the hidden values of all experts (w1, w3, SwiGLU, rounding to e4m3),
// one more their outputs (w2). How many rows an expert has is known on the device alone; a block whose expert has none
// ends at once. Tiles of 32 hidden columns are exactly one scale block.
#include "kernels/experts/cuda/expert_table.cuh"
#include "kernels/linear/cuda/lane_tile.cuh"

namespace deepinfer {
namespace {

template <size_t kMax>
struct ExpertsArguments {
  ExpertTable<kMax> table;
  const float* x;  // [tokens, padded(hidden)]
  float* h;        // [assignments, padded(inner)]
};

// Up to kRows assignments from `first` on: 32 hidden columns of each into h.
template <WeightKind kKind, int kRows, size_t kMax>
__device__ void make_hidden(const ExpertsArguments<kMax>& a, float4* shared, int64_t first, int num_rows) {
  __shared__ float hidden[kRows][kTileOut];
  const ExpertTable<kMax>& table = a.table;
  const int e = static_cast<int>(blockIdx.y);
  const int64_t out_begin = int64_t{blockIdx.x} * kTileOut, padded = padded_columns(table.inner);
  const TileRows rows{a.x, padded_columns(table.hidden), table.token.data, first, num_rows};
  auto* stages = reinterpret_cast<TileStage<kKind, kRows>*>(shared);
  float gate[kRows], up[kRows];
  multiply_tile(stages, table.w1(e), out_begin, rows, gate);
  multiply_tile(stages, table.w3(e), out_begin, rows, up);
  __syncthreads();
  if (threadIdx.x % kThreadsPerOut == 0)
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (r < num_rows)
        hidden[r][threadIdx.x / kThreadsPerOut] = to_float(swiglu(
            to_bf16(gate[r]), to_bf16(up[r]), table.swiglu_limit, table.weight.data ? &table.weight(first + r) : nullptr));
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % 32;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < num_rows; r += kTileThreads / 32) {
    const Coded c = encode(RowFormat::kFp8Block32, hidden[r][column]);
    a.h[(first + r) * padded + out_begin + column] = e4m3_to_float(c.code) * e8m0_to_float(c.scale);
  }
}

template <WeightKind kKind, int kRows, size_t kMax>
__device__ void make_out(const ExpertsArguments<kMax>& a, float4* shared, int64_t first, int num_rows) {
  const ExpertTable<kMax>& table = a.table;
  const int64_t out_begin = int64_t{blockIdx.x} * kTileOut;
  const TileRows rows{a.h, padded_columns(table.inner), nullptr, first, num_rows};
  float sums[kRows];
  multiply_tile(reinterpret_cast<TileStage<kKind, kRows>*>(shared),
                table.w2(static_cast<int>(blockIdx.y)), out_begin, rows, sums);
  const int64_t out = out_begin + threadIdx.x / kThreadsPerOut;
  if (threadIdx.x % kThreadsPerOut != 0 || out >= table.hidden) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (r < num_rows) table.out(first + r, out) = to_bf16(sums[r]);
}

// blockIdx: x tile of outputs, y expert. Rows in tiles of 8, the last one no larger than it must be.
template <WeightKind kKind, bool kIsHidden, size_t kMax>
__global__ void __launch_bounds__(kTileThreads) experts_kernel(const __grid_constant__ ExpertsArguments<kMax> a) {
  extern __shared__ float4 shared[];
  const int64_t end = a.table.begin(blockIdx.y + 1);
  const auto run = [&](auto rows, int64_t first, int num_rows) {
    if constexpr (kIsHidden) make_hidden<kKind, decltype(rows)::value>(a, shared, first, num_rows);
    else make_out<kKind, decltype(rows)::value>(a, shared, first, num_rows);
  };
  for (int64_t first = a.table.begin(blockIdx.y); first < end; first += 8) {
    const int left = static_cast<int>(end - first < 8 ? end - first : 8);
    if (left == 1) run(std::integral_constant<int, 1>{}, first, left);
    else if (left == 2) run(std::integral_constant<int, 2>{}, first, left);
    else if (left <= 4) run(std::integral_constant<int, 4>{}, first, left);
    else run(std::integral_constant<int, 8>{}, first, left);
  }
}

template <WeightKind kKind, size_t kMax>
void launch_experts(const ExecutionContext& context, const ExpertsArguments<kMax>& a, int64_t num_experts) {
  constexpr int64_t kShared = kStages * sizeof(TileStage<kKind, 8>);
  const dim3 hidden_grid(num_blocks(padded_columns(a.table.inner), kTileOut), num_blocks(num_experts, 1));
  const dim3 out_grid(num_blocks(a.table.hidden, kTileOut), num_blocks(num_experts, 1));
  allow_shared_memory(experts_kernel<kKind, true, kMax>, kShared);
  allow_shared_memory(experts_kernel<kKind, false, kMax>, kShared);
  experts_kernel<kKind, true, kMax><<<hidden_grid, kTileThreads, kShared, stream_of(context)>>>(a);
  experts_kernel<kKind, false, kMax><<<out_grid, kTileThreads, kShared, stream_of(context)>>>(a);
}

template <size_t kMax>
void run_experts(const ExecutionContext& context, const ExpertsParams& p) {
  const Scratch::Frame frame(*context.scratch);
  ExpertsArguments<kMax> a{};
  const bool is_fp4 = fill_expert_table(p, a.table);
  const int64_t padded = padded_columns(a.table.hidden), num_experts = static_cast<int64_t>(p.experts.size());
  float* x = context.scratch->take<float>(p.x.size[0] * padded);
  a.x = x;
  a.h = context.scratch->take<float>(p.out.size[0] * padded_columns(a.table.inner));
  launch_activations(context, {p.x.data, p.x.stride[0], a.table.hidden, padded, true, x}, p.x.size[0], 1);
  if (is_fp4) launch_experts<WeightKind::kFp4>(context, a, num_experts);
  else launch_experts<WeightKind::kFp8>(context, a, num_experts);
  context.device->launched("experts");
}

void experts_cuda(const ExecutionContext& context, const ExpertsParams& p) {
  if (p.out.num_elements() == 0 || p.x.size[0] == 0) return;
  if (p.experts.size() == 1) run_experts<1>(context, p);
  else run_experts<kExpertsMax>(context, p);
}

}  // namespace

extern const Launch<ExpertsParams> kExpertsCuda = experts_cuda;

}  // namespace deepinfer
