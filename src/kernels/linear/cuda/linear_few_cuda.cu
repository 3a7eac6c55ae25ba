// SPDX-License-Identifier: MIT
// Linear of bf16 with few outputs (gates, index weights) for more than eight rows, at the speed of memory: mma.sync
// m16n8k16 with tokens as A and outputs as B, straight from the rows. A block has one segment of the columns, whose
// weights stand in shared memory; a warp has sixteen tokens, whose columns each thread copies runs ahead and reads back
// alone. Segments are the blocks of a cluster. Sums run as in narrow_tile.cuh, over the same sixteen columns an instruction.
#include <algorithm>

#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/linear/cuda/activations.cuh"
#include "kernels/linear/cuda/bulk_copy.cuh"
#include "kernels/linear/cuda/linear_few.h"
#include "kernels/linear/cuda/linear_tensor.h"
#include "kernels/linear/cuda/panel_activations.cuh"
#include "kernels/linear/cuda/tensor_tile.cuh"

namespace deepinfer {
namespace {

constexpr int kTokens = 16, kMostWarps = 8, kMostOutputs = 32;
constexpr int kRun = 32, kUnit = 256, kRunBytes = kTokens * kRun * 2;  // columns; segments are whole units; a warp's run

struct FewLinear {
  DeviceMatrix weight;
  int32_t segments, num_rows;
  const bf16* x;
  int64_t row_stride;
  bool round;
  Bf16Vector bias;
  View<bf16, dim::rows, dim::out> out;
  View<float, dim::rows, dim::out> out_f32;
  bool add;
};

struct Segment {
  int first, columns;
};
__host__ __device__ constexpr Segment segment_of(int in, int segments, int rank) {
  const int units = in / kUnit, first = rank * units / segments * kUnit;
  return {first, (rank + 1) * units / segments * kUnit - first};
}
// Bytes of an output's weights in shared memory: neighbouring outputs fall into different halves of the banks.
__host__ __device__ constexpr int weight_pitch(int columns) { return 2 * columns + 64; }

// Starts copying; outputs beyond the last are the last.
__device__ void copy_weights(const FewLinear& a, const Segment& segment, int num_outputs, uint8_t* to) {
  const int pieces = segment.columns / 8;
  const auto* from = reinterpret_cast<const bf16*>(a.weight.codes) + segment.first;
  for (int i = static_cast<int>(threadIdx.x); i < num_outputs * pieces; i += static_cast<int>(blockDim.x)) {
    const int o = i / pieces, piece = i % pieces;
    copy_16(to + o * weight_pitch(segment.columns) + 16 * piece,
            from + min(o, a.weight.out - 1) * int64_t{a.weight.in} + 8 * piece);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Of tokens g and g + 8 of a warp's sixteen.
template <int kTiles>
using FewSums = float[kTiles][4];

template <int kTiles>
__device__ void multiply_run(const FewLinear& a, uint4 low, uint4 high, const uint8_t* weights, int pitch,
                             FewSums<kTiles>& sums) {
  if (a.round) low = round_to_e4m3_by_four(low), high = round_to_e4m3_by_four(high);
  const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const uint4 w = *reinterpret_cast<const uint4*>(weights + 8 * tile * pitch);
    multiply_16x8x16(sums[tile], first, w.x, w.y);
    multiply_16x8x16(sums[tile], second, w.z, w.w);
  }
}

// The warp's tokens from `first` on over the segment. ring: kRing runs of the warp.
template <int kTiles, int kRing>
__device__ void multiply_few(const FewLinear& a, const Segment& segment, int first, uint8_t* ring, const uint8_t* weights,
                             FewSums<kTiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4, runs = segment.columns / kRun;
  const int last = a.num_rows - 1, pitch = weight_pitch(segment.columns);
  const bf16* low = a.x + min(first + g, last) * a.row_stride + segment.first + 8 * c;
  const bf16* high = a.x + min(first + g + 8, last) * a.row_stride + segment.first + 8 * c;
  const auto copy_run = [&](int n) {
    if (n < runs) {
      uint8_t* to = ring + n % kRing * kRunBytes + 16 * lane;
      copy_16(to, low + n * kRun);
      copy_16(to + kRunBytes / 2, high + n * kRun);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int n = 0; n < kRing; ++n) copy_run(n);
  asm volatile("cp.async.wait_group %0;" ::"n"(kRing) : "memory");  // weights
  __syncthreads();
  weights += g * pitch + 16 * c;
  for (int n = 0; n < runs; ++n) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kRing - 1) : "memory");
    const uint8_t* from = ring + n % kRing * kRunBytes + 16 * lane;
    multiply_run<kTiles>(a, *reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + kRunBytes / 2),
                         weights + 2 * kRun * n, pitch, sums);
    copy_run(n + kRing);
  }
}

__device__ void write_few(const FewLinear& a, int row, int out, float y) {
  if (row >= a.num_rows || out >= a.weight.out) return;
  if (!a.bias.empty()) y += a.bias[out];
  if (a.out.data) a.out(row, out) = to_bf16(y);
  else a.out_f32(row, out) = a.add ? a.out_f32(row, out) + y : y;
}

template <int kTiles, int kRing>
__global__ void __launch_bounds__(32 * kMostWarps, 2) few_linear_kernel(const __grid_constant__ FewLinear a) {
  extern __shared__ uint4 shared[];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), warp = thread / 32;
  const int rank = static_cast<int>(blockIdx.x) % a.segments, g = thread % 32 / 4, c = thread % 4;
  const int first = (static_cast<int>(blockIdx.x) / a.segments * (threads / 32) + warp) * kTokens;
  uint8_t* rings = reinterpret_cast<uint8_t*>(shared);
  uint8_t* weights = rings + threads / 32 * (kRing * kRunBytes);
  const Segment segment = segment_of(a.weight.in, a.segments, rank);
  copy_weights(a, segment, 8 * kTiles, weights);
  begin_overlapped();
  FewSums<kTiles> sums = {};
  multiply_few<kTiles, kRing>(a, segment, first, rings + warp * (kRing * kRunBytes), weights, sums);
  __syncthreads();
  float* parts = reinterpret_cast<float*>(shared) + thread;  // where the rings were
#pragma unroll
  for (int i = 0; i < 4 * kTiles; ++i) parts[i * threads] = sums[i / 4][i % 4];
  wait_for_cluster();
  for (int i = rank; i < 4 * kTiles; i += a.segments) {
    float sum = read_in_cluster(parts + i * threads, 0);
    for (int s = 1; s < a.segments; ++s) sum += read_in_cluster(parts + i * threads, static_cast<uint32_t>(s));
    write_few(a, first + g + i % 4 / 2 * 8, i / 4 * 8 + 2 * c + i % 2, sum);
  }
  wait_for_cluster();  // no block leaves while others read its sums
}

template <int kTiles>
void launch_few(const ExecutionContext& context, const FewLinear& a) {
  constexpr int kRing = 8, kLongRing = 24;  // runs on their way: more where few warps would leave memory waiting
  const int64_t tiles = num_blocks(a.num_rows, kTokens);
  const int64_t warps = std::clamp<int64_t>(tiles * a.segments / multiprocessor_count(), 1, kMostWarps);
  const int ring = warps <= 2 ? kLongRing : kRing;
  const Segment widest = segment_of(a.weight.in, a.segments, a.segments - 1);
  const auto segments = static_cast<unsigned>(a.segments);
  const LaunchShape shape{dim3(num_blocks(tiles, warps) * segments), static_cast<unsigned>(32 * warps),
                          warps * ring * kRunBytes + 8 * kTiles * weight_pitch(widest.columns), segments};
  if (ring == kLongRing) launch_overlapped(context, shape, few_linear_kernel<kTiles, kLongRing>, a);
  else launch_overlapped(context, shape, few_linear_kernel<kTiles, kRing>, a);
}

}  // namespace

bool fits_few(const LinearParams& p) {
  constexpr int64_t kMostColumns = 8192;  // weights of a segment fit the shared memory of half a multiprocessor
  return std::holds_alternative<Bf16Matrix>(p.weight) && num_outputs(p.weight) <= kMostOutputs && p.num_groups == 1 &&
         num_inputs(p.weight) <= kMostColumns && reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0;
}

void linear_few(const ExecutionContext& context, const LinearParams& p) {
  const DeviceMatrix weight = device_matrix(std::get<Bf16Matrix>(p.weight));
  const FewLinear a{.weight = weight,
                    .segments = num_segments(weight.out, weight.in, false),
                    .num_rows = static_cast<int32_t>(p.x.size[0]),
                    .x = p.x.data,
                    .row_stride = p.x.stride[0],
                    .round = p.round_activation,
                    .bias = p.bias,
                    .out = p.out,
                    .out_f32 = p.out_f32,
                    .add = p.add};
  if (weight.out <= 8) launch_few<1>(context, a);
  else if (weight.out <= 16) launch_few<2>(context, a);
  else launch_few<4>(context, a);
}

}  // namespace deepinfer
