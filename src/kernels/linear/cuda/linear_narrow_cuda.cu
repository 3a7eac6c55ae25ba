// SPDX-License-Identifier: MIT
// Linear of bf16 for up to eight rows.
#include "kernels/lanes/cuda/overlapped_launch.cuh"
#include "kernels/linear/cuda/activations.cuh"
#include "kernels/linear/cuda/linear_tensor.h"
#include "kernels/linear/cuda/narrow_tile.cuh"
#include "kernels/linear/cuda/tensor_activations.cuh"

namespace deepinfer {
namespace {

constexpr int kWarps = 8, kFewWarps = 4;  // of a block, at most; and where each copies further ahead
constexpr int kSlots = 4, kManySlots = 10;

struct NarrowLinear {
  DeviceMatrix weight;  // of all groups
  int32_t group_out, segments, num_rows;
  const bf16* x;
  int64_t row_stride;
  NarrowStaging staging;
  Bf16Vector bias;
  View<bf16, dim::rows, dim::out> out;
  View<float, dim::rows, dim::out> out_f32;
  bool add;
};

// A warp has sixteen outputs and a segment.
template <int kSlots>
__global__ void __launch_bounds__(32 * kWarps, 2) narrow_linear_kernel(const __grid_constant__ NarrowLinear a) {
  extern __shared__ uint4 shared[];
  uint8_t* slots = reinterpret_cast<uint8_t*>(shared);
  uint8_t* tokens = slots + blockDim.x / 32 * (kSlots * kNarrowChunkBytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4,
            c = static_cast<int>(threadIdx.x) % 4, in = a.weight.in, last = a.weight.out - 1;
  const int first = static_cast<int>(blockIdx.x) * (static_cast<int>(blockDim.x) / 32 / a.segments) * 16;
  const int out = first + warp / a.segments * 16 + g;
  Narrow<kSlots> work(narrow_rows(a.weight, min(out, last), min(out + 8, last)), slots, in, warp % a.segments, a.segments);
  let_kernels_behind_begin();
  wait_for_kernels_before();
  const bf16* x = a.x + int64_t{first / a.group_out} * in;
  stage_narrow(tokens, a.num_rows, in, a.staging, [&](int t) { return x + t * a.row_stride; });
  __syncthreads();
  float sums[4];
  work.multiply(narrow_x(tokens, a.num_rows, in), sums);
  add_segments(reinterpret_cast<float*>(tokens + a.num_rows * narrow_pitch(in)), a.segments, sums);
  if (warp % a.segments != 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int o = out + i / 2 * 8, r = 2 * c + i % 2;
    if (o > last || r >= a.num_rows) continue;
    float y = sums[i];
    if (!a.bias.empty()) y += a.bias[o];
    if (a.out.data) a.out(r, o) = to_bf16(y);
    else a.out_f32(r, o) = a.add ? a.out_f32(r, o) + y : y;
  }
}

struct NarrowShape {
  int tiles, threads;  // of a block
  int64_t shared_bytes;
  bool is_few;
};
// As many blocks as there are multiprocessors, if each then has a few warps at most.
NarrowShape narrow_shape(int64_t rows, int64_t out, int64_t in) {
  constexpr int64_t kBlocks = 132;
  const int segments = num_segments(out, in, false);
  const int64_t tiles = (out + 15) / 16;
  int each = 1;  // a power of two: it divides the outputs of a group
  while (each * kBlocks < tiles && 2 * each * segments <= kWarps) each *= 2;
  const int warps = each * segments;
  const bool is_few = warps <= kFewWarps;
  return {each, 32 * warps,
          warps * ((is_few ? kManySlots : kSlots) * kNarrowChunkBytes) + rows * narrow_pitch(static_cast<int>(in)) +
              (segments > 1 ? 16 * 32 * warps : 0),
          is_few};
}

}  // namespace

bool fits_narrow(const LinearParams& p) {
  constexpr int64_t kSharedBytes = 227 << 10;
  const int64_t out = num_outputs(p.weight), in = num_inputs(p.weight);
  return p.x.size[0] <= kNarrowRows && std::holds_alternative<Bf16Matrix>(p.weight) &&
         narrow_shape(p.x.size[0], out, in).shared_bytes <= kSharedBytes;
}

void linear_narrow(const ExecutionContext& context, const LinearParams& p) {
  const DeviceMatrix weight = device_matrix(std::get<Bf16Matrix>(p.weight));
  const NarrowLinear a{.weight = weight,
                       .group_out = weight.out / p.num_groups,
                       .segments = num_segments(weight.out, weight.in, false),
                       .num_rows = static_cast<int32_t>(p.x.size[0]),
                       .x = p.x.data,
                       .row_stride = p.x.stride[0],
                       .staging = {p.round_activation,
                                   reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0 && p.x.stride[0] % 8 == 0},
                       .bias = p.bias,
                       .out = p.out,
                       .out_f32 = p.out_f32,
                       .add = p.add};
  const NarrowShape shape = narrow_shape(a.num_rows, weight.out, weight.in);
  const LaunchShape launch{dim3(num_blocks(weight.out, 16 * shape.tiles)), static_cast<unsigned>(shape.threads),
                           shape.shared_bytes};
  if (shape.is_few) launch_overlapped(context, launch, narrow_linear_kernel<kManySlots>, a);
  else launch_overlapped(context, launch, narrow_linear_kernel<kSlots>, a);
}

}  // namespace deepinfer
