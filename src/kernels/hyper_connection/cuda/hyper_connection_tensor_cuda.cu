// SPDX-License-Identifier: MIT
// Mixing of four streams on tensor cores. The fp32 matrix is three bf16 matrices that add up to it exactly, so only the
// order of the sums differs from the reference. A warp holds 64 columns of all 24 rows in registers and passes over the
// tokens, 16 at a time; a block adds its warps' sums in order, a second kernel the blocks' sums. Splits depend on the
// matrix alone: a token's result depends on nothing but the token.
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/exponential.h"
#include "kernels/linear/cuda/bulk_copy.cuh"
#include "kernels/linear/cuda/tensor_tile.cuh"

namespace deepinfer {

extern const Launch<StreamMixParams> kStreamMixCuda;

namespace {

constexpr int kStreams = 4, kOut = (2 + kStreams) * kStreams, kSums = kOut + 1;  // the last: of the squares
constexpr int kWarps = 8, kThreads = 32 * kWarps, kWarpColumns = 64, kColumns = kWarps * kWarpColumns;
constexpr int kTokens = 16, kTiles = kOut / 8, kParts = 3;

// Two floats as three pairs of bf16.
__device__ void split_pair(float first, float second, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    parts[i] = *reinterpret_cast<const uint32_t*>(&pair);
    first -= __low2float(pair), second -= __high2float(pair);
  }
}

// Columns of a block of 32 stand in the instruction's order: thread c of four has columns 8 c .. 8 c + 7 of it.
struct Matrix {
  uint32_t pairs[2][kTiles][4][kParts];  // [block of 32][8 rows][pair of columns]

  __device__ void load(const StreamMixParams& p, int64_t column, int g, int c) {
#pragma unroll
    for (int block = 0; block < 2; ++block)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto* row = reinterpret_cast<const float4*>(p.fn.row(8 * tile + g) + column + 32 * block + 8 * c);
        const float4 low = row[0], high = row[1];
        split_pair(low.x, low.y, pairs[block][tile][0]);
        split_pair(low.z, low.w, pairs[block][tile][1]);
        split_pair(high.x, high.y, pairs[block][tile][2]);
        split_pair(high.z, high.w, pairs[block][tile][3]);
      }
  }
};

__device__ float sum_of_squares(uint4 eight) {
  const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = __uint_as_float(words[i] << 16), high = __uint_as_float(words[i] & 0xFFFF0000u);
    sum = __fmaf_rn(high, high, __fmaf_rn(low, low, sum));
  }
  return sum;
}

// A thread's pieces of kTokens tokens: columns 8 c .. 8 c + 7 of each block of 32, of tokens g and g + 8. It copies
// them some tiles ahead and reads them back alone.
constexpr int kStages = 4;
using Pieces = uint4[2][2][kThreads];  // [block of 32][token g or g + 8]
struct MixShared {
  Pieces pieces[kStages];
  float sums[2][kWarps][kTokens][kSums + 2];  // in turn: a warp may still read the tile before
};

__device__ void copy_tile(const StreamMixParams& p, Pieces& to, int64_t first, int64_t end, int64_t column) {
  const int64_t low = first + static_cast<int>(threadIdx.x) % 32 / 4, last = p.x.size[0] - 1;
  if (first < end) {
    const bf16* from_low = p.x.row(low < last ? low : last) + column;
    const bf16* from_high = p.x.row(low + 8 < last ? low + 8 : last) + column;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      copy_16(&to[block][0][threadIdx.x], from_low + 32 * block);
      copy_16(&to[block][1][threadIdx.x], from_high + 32 * block);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// The sums of a tile of tokens from `first` on over the block's columns.
__device__ void add_tile(const StreamMixParams& p, const Matrix& matrix, const Pieces& x, float* sums, int64_t first,
                         float (&shared)[kWarps][kTokens][kSums + 2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4,
            c = static_cast<int>(threadIdx.x) % 4;
  float acc[kTiles][4] = {}, squares[2] = {};
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const uint4 low = x[block][0][threadIdx.x], high = x[block][1][threadIdx.x];
    squares[0] += sum_of_squares(low), squares[1] += sum_of_squares(high);
    const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part)  // the smallest first
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int k = 0; k < 2; ++k)
          multiply_16x8x16(acc[tile], a[k], matrix.pairs[block][tile][2 * k][part],
                           matrix.pairs[block][tile][2 * k + 1][part]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    for (int step = 1; step < 4; step *= 2) squares[half] += __shfl_xor_sync(0xFFFFFFFFu, squares[half], step);
    if (c == 0) shared[warp][g + 8 * half][kOut] = squares[half];
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) shared[warp][g + i / 2 * 8][8 * tile + 2 * c + i % 2] = acc[tile][i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kSums; i += kThreads) {
    const int token = i / kSums, o = i % kSums;
    if (first + token >= p.x.size[0]) break;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += shared[w][token][o];
    sums[(blockIdx.x * p.x.size[0] + first + token) * kSums + o] = sum;
  }
}

// sums: [blocks of columns, tokens, kSums]. The block's columns of the matrix serve `num_each` times kTokens tokens.
__global__ void __launch_bounds__(kThreads, 2)
    partial_kernel(const __grid_constant__ StreamMixParams p, float* sums, int num_each) {
  extern __shared__ uint4 raw[];
  auto& s = *reinterpret_cast<MixShared*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4,
            c = static_cast<int>(threadIdx.x) % 4;
  const int64_t columns = int64_t{blockIdx.x} * kColumns + warp * kWarpColumns;
  Matrix matrix;
  matrix.load(p, columns, g, c);
  begin_overlapped();
  const int64_t first = int64_t{blockIdx.y} * num_each * kTokens, end = min(first + num_each * kTokens, p.x.size[0]);
  for (int i = 0; i < kStages - 1; ++i) copy_tile(p, s.pieces[i], first + i * kTokens, end, columns + 8 * c);
#pragma unroll 1
  for (int i = 0; first + i * kTokens < end; ++i) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    copy_tile(p, s.pieces[(i + kStages - 1) % kStages], first + (i + kStages - 1) * kTokens, end, columns + 8 * c);
    add_tile(p, matrix, s.pieces[i % kStages], sums, first + i * kTokens, s.sums[i % 2]);
  }
}

// sinkhorn.h with all coefficients in the registers of one thread.
__device__ void sinkhorn_alone(float (&c)[kStreams][kStreams], int iterations, float epsilon) {
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    const float highest = fmaxf(fmaxf(c[i][0], c[i][1]), fmaxf(c[i][2], c[i][3]));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) sum += c[i][j] = exp_in_lanes(c[i][j] - highest);
#pragma unroll
    for (int j = 0; j < kStreams; ++j) c[i][j] = __fdividef(c[i][j], sum) + epsilon;
  }
  for (int step = 0; step < iterations; ++step) {
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      if (step == 0) break;
      const float by = __fdividef(1.f, c[i][0] + c[i][1] + (c[i][2] + c[i][3]) + epsilon);
#pragma unroll
      for (int j = 0; j < kStreams; ++j) c[i][j] *= by;
    }
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      const float by = __fdividef(1.f, c[0][j] + c[1][j] + (c[2][j] + c[3][j]) + epsilon);
#pragma unroll
      for (int i = 0; i < kStreams; ++i) c[i][j] *= by;
    }
  }
}

// A warp adds one token's sums; then a thread each makes the rest of the block's tokens.
__global__ void __launch_bounds__(kThreads)
    coefficients_kernel(const __grid_constant__ StreamMixParams p, const float* sums, int num_parts) {
  __shared__ float mixed[kWarps][kOut + 1];
  begin_overlapped();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  const int64_t first = int64_t{blockIdx.x} * num_warps, t = first + warp, tokens = p.x.size[0];
  float sum = 0;
  if (t < tokens && lane < kSums) {
#pragma unroll 20
    for (int part = 0; part < num_parts; ++part) sum += sums[(part * tokens + t) * kSums + lane];
  }
  const float squares = __shfl_sync(0xFFFFFFFFu, sum, kOut);
  const float inverse = rsqrtf(squares / static_cast<float>(p.fn.in) + p.norm_epsilon);
  if (t < tokens && lane < kOut) {
    const int kind = lane < kStreams ? 0 : lane < 2 * kStreams ? 1 : 2;
    const float z = __fmaf_rn(sum * inverse, p.scale[kind], p.base[lane]);
    mixed[warp][lane] = z;
    if (kind == 0) p.pre(t, lane) = sigmoid_in_lanes(z) + p.epsilon;
    if (kind == 1) p.post(t, lane - kStreams) = 2.f * sigmoid_in_lanes(z);
  }
  if (num_warps > 1) __syncthreads();
  else __syncwarp();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine >= num_warps || first + mine >= tokens) return;
  float comb[kStreams][kStreams];
#pragma unroll
  for (int i = 0; i < kStreams * kStreams; ++i) comb[i / kStreams][i % kStreams] = mixed[mine][2 * kStreams + i];
  sinkhorn_alone(comb, p.iterations, p.epsilon);
#pragma unroll
  for (int i = 0; i < kStreams * kStreams; ++i)
    p.comb(first + mine, i / kStreams, i % kStreams) = comb[i / kStreams][i % kStreams];
}

bool takes(const StreamMixParams& p) {
  return p.x.size[1] == kStreams && p.fn.in % kColumns == 0 && p.x.stride[0] % 8 == 0 &&
         (reinterpret_cast<uintptr_t>(p.x.data) | reinterpret_cast<uintptr_t>(p.fn.data)) % 16 == 0;
}

void stream_mix_tensor_cuda(const ExecutionContext& context, const StreamMixParams& p) {
  const int64_t tokens = p.x.size[0];
  if (tokens == 0) return;
  if (!takes(p)) return kStreamMixCuda(context, p);
  const Scratch::Frame frame(*context.scratch);
  const unsigned parts = num_blocks(p.fn.in, kColumns);
  float* sums = context.scratch->take<float>(parts * tokens * kSums);
  const unsigned tiles = num_blocks(tokens, kTokens);  // as many blocks as run at once, if there are so many
  const unsigned rounds = std::max(1u, 2 * multiprocessor_count() / parts), num_each = num_blocks(tiles, rounds);
  allow_shared_memory(partial_kernel, sizeof(MixShared));
  launch_overlapped(context, {dim3(parts, num_blocks(tiles, num_each)), kThreads, sizeof(MixShared)}, partial_kernel, p,
                    sums, static_cast<int>(num_each));
  const unsigned warps = tokens <= multiprocessor_count() ? 1 : kWarps;
  launch_overlapped(context, {num_blocks(tokens, warps), 32 * warps}, coefficients_kernel, p, sums,
                    static_cast<int>(parts));
  context.device->launched("stream_mix");
}

}  // namespace

extern const Launch<StreamMixParams> kStreamMixTensorCuda = stream_mix_tensor_cuda;

}  // namespace deepinfer
