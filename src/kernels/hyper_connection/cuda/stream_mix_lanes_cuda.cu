// SPDX-License-Identifier: MIT
// Mixing of four streams, sums in the reference's order: sixteen lanes a row, each a chain in ascending steps (column
// 16 step + lane). Chains are independent, so a block takes tokens and lanes, a thread some rows of some tokens in one
// lane; a second kernel folds the lanes. fn is first arranged lane by lane, so that a thread reads four steps at a time
// and a block of few lanes reads nothing else. Of few tokens the streams are arranged too, and a block has one lane;
// of many that would cost more than it saves: a block has several lanes and turns their pairs on the way to shared
// memory.
#include <cuda_pipeline.h>

#include <algorithm>

#include "kernels/hyper_connection/cuda/sinkhorn_together.cuh"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/lane_sum.cuh"

namespace deepinfer {

extern const Launch<StreamMixParams> kStreamMixCuda;

namespace {

constexpr int kStreams = 4, kOut = (2 + kStreams) * kStreams, kSums = kOut + 1;  // the last: of the squares
constexpr int kPairs = kLaneThreads / 2;                                         // two lanes of a token in one word
constexpr int kAtOnce = 4;                                                       // steps a thread reads in one load

// Words behind a row in shared memory: neighbours start in different banks, and one may read ahead.
constexpr int kPad = 4;

constexpr int kArrangeThreads = 256, kArrangeWords = 4 * kArrangeThreads;

// What the kernels hand on.
struct Arranged {
  float* fn;    // [lanes, kOut, steps]
  uint32_t* x;  // [kPairs, tokens, steps], of few tokens
  float* sums;  // [tokens, kSums, lanes]
  int steps;
};

// Words [steps, kWords] of one row become [kWords, steps]: those of a tile of steps.
template <int kWords>
__device__ void arrange_tile(const uint32_t* from, uint32_t* to, int64_t to_stride, int first, int steps) {
  constexpr int kTile = kArrangeWords / kWords;
  __shared__ uint32_t words[kWords][kTile + 1];
  const int at = 4 * static_cast<int>(threadIdx.x);
  if (const int step = at / kWords, word = at % kWords; first + step < steps) {
    const uint4 four = *reinterpret_cast<const uint4*>(from + int64_t{first} * kWords + at);
    words[word][step] = four.x, words[word + 1][step] = four.y;
    words[word + 2][step] = four.z, words[word + 3][step] = four.w;
  }
  __syncthreads();
  if (const int word = at / kTile, step = at % kTile; first + step < steps)
    *reinterpret_cast<uint4*>(to + word * to_stride + first + step) =
        make_uint4(words[word][step], words[word][step + 1], words[word][step + 2], words[word][step + 3]);
}

// A block has a tile of a row: first those of fn, then those of x if there are any.
constexpr int kFnTile = kArrangeWords / kLaneThreads, kXTile = kArrangeWords / kPairs;

__global__ void __launch_bounds__(kArrangeThreads)
    arrange_kernel(const __grid_constant__ StreamMixParams p, Arranged a) {
  begin_overlapped();
  const int fn_tiles = (a.steps + kFnTile - 1) / kFnTile, x_tiles = (a.steps + kXTile - 1) / kXTile;
  int block = static_cast<int>(blockIdx.x);
  if (block < kOut * fn_tiles) {
    const int row = block / fn_tiles;
    arrange_tile<kLaneThreads>(reinterpret_cast<const uint32_t*>(p.fn.row(row)),
                               reinterpret_cast<uint32_t*>(a.fn) + int64_t{row} * a.steps, int64_t{kOut} * a.steps,
                               block % fn_tiles * kFnTile, a.steps);
  } else {
    block -= kOut * fn_tiles;
    const int64_t t = block / x_tiles;
    arrange_tile<kPairs>(reinterpret_cast<const uint32_t*>(p.x.row(t)), a.x + t * a.steps, p.x.size[0] * a.steps,
                         block % x_tiles * kXTile, a.steps);
  }
}

// A lane of a word of two.
struct Half {
  unsigned selector;
  __device__ explicit Half(int lane) : selector(lane % 2 == 0 ? 0x1044u : 0x3244u) {}
  __device__ float of(uint32_t word) const { return __uint_as_float(__byte_perm(word, 0, selector)); }
};

// Four steps of kTokens tokens and kRows rows; strides in words of shared memory.
template <int kTokens, int kRows>
struct Four {
  uint4 x[kTokens];
  float4 fn[kRows];

  __device__ void load(const uint32_t* from, int x_stride, const float* by, int fn_stride) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) x[t] = *reinterpret_cast<const uint4*>(from + t * x_stride);
#pragma unroll
    for (int r = 0; r < kRows; ++r) fn[r] = *reinterpret_cast<const float4*>(by + r * fn_stride);
  }
  __device__ void add_to(float (&sums)[kTokens][kRows], Half half) const {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float a = half.of(x[t].x), b = half.of(x[t].y), c = half.of(x[t].z), d = half.of(x[t].w);
#pragma unroll
      for (int r = 0; r < kRows; ++r)  // in this order
        sums[t][r] = sums[t][r] + a * fn[r].x + b * fn[r].y + c * fn[r].z + d * fn[r].w;
    }
  }
};

// Adds the next steps to their chains. Ahead: the next four are read while some are added, the last time what stands
// behind the row.
template <bool kAhead, int kTokens, int kRows>
__device__ void add_steps(const uint32_t* x, int x_stride, const float* fn, int fn_stride, Half half, int steps,
                          float (&sums)[kTokens][kRows]) {
  Four<kTokens, kRows> now;
  if (kAhead) now.load(x, x_stride, fn, fn_stride);
#pragma unroll(kAhead ? 4 : 2)
  for (int i = 0; i < steps; i += kAtOnce) {
    if (kAhead) {
      Four<kTokens, kRows> next;
      next.load(x + i + kAtOnce, x_stride, fn + i + kAtOnce, fn_stride);
      now.add_to(sums, half);
      now = next;
    } else {
      now.load(x + i, x_stride, fn + i, fn_stride);
      now.add_to(sums, half);
    }
  }
}
__device__ float add_squares(const uint32_t* x, Half half, int steps, float sum) {
#pragma unroll 2
  for (int i = 0; i < steps; i += kAtOnce) {
    const uint4 words = *reinterpret_cast<const uint4*>(x + i);
    const float a = half.of(words.x), b = half.of(words.y), c = half.of(words.z), d = half.of(words.w);
    sum = sum + a * a + b * b + c * c + d * d;
  }
  return sum;
}

// Few tokens: block (lane, tokens): a thread has kRows rows of kTokens tokens; warps behind those have the squares.
constexpr int kFewSteps = 64, kFewStages = 4, kFewStride = kFewSteps + kPad, kFewTokens = 64;
constexpr int kFewThreadsLeast = 128, kFewThreadsMost = 256;  // the most: rows and squares of the tiles below

// Rows of fn, then of x, in one lane: both stand `steps` words apart. Threads are a multiple of kPieces.
__device__ void copy_few(const Arranged& a, uint32_t* stage, const uint32_t* fn, const uint32_t* x, int num_rows,
                         int begin) {
  constexpr int kPieces = kFewSteps / kAtOnce;
  const int thread = static_cast<int>(threadIdx.x), step = thread % kPieces * kAtOnce;
  if (begin + step >= a.steps) return;
  for (int row = thread / kPieces; row < num_rows; row += static_cast<int>(blockDim.x) / kPieces)
    __pipeline_memcpy_async(stage + row * kFewStride + step,
                            (row < kOut ? fn + row * a.steps : x + (row - kOut) * a.steps) + begin + step, 16);
}

// Threads that have rows, in whole warps.
template <int kTokens, int kRows>
__host__ __device__ constexpr int few_row_threads(int num_tokens) {
  return ((num_tokens + kTokens - 1) / kTokens * (kOut / kRows) + 31) / 32 * 32;
}

template <int kTokens, int kRows>
__global__ void __launch_bounds__(kFewThreadsMost) few_kernel(Arranged a, int64_t tokens, int num_tokens) {
  begin_overlapped();
  constexpr int kGroups = kOut / kRows;
  extern __shared__ uint4 raw[];
  auto* shared = reinterpret_cast<uint32_t*>(raw);
  const int lane = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int64_t first = int64_t{blockIdx.y} * num_tokens;
  const int mine = static_cast<int>(min(int64_t{num_tokens}, tokens - first)), num_rows = kOut + mine;
  const int tiles = (num_tokens + kTokens - 1) / kTokens;
  const int stage_words = (kOut + tiles * kTokens) * kFewStride, chunks = (a.steps + kFewSteps - 1) / kFewSteps;
  const auto* fn = reinterpret_cast<const uint32_t*>(a.fn) + int64_t{lane} * kOut * a.steps;
  const uint32_t* x = a.x + (lane / 2 * tokens + first) * a.steps;
  const int row_threads = few_row_threads<kTokens, kRows>(num_tokens);
  const bool may_have_rows = thread < row_threads;
  const int token = may_have_rows ? thread / kGroups : thread - row_threads, group = thread % kGroups;
  const bool is_idle = token >= (may_have_rows ? tiles : mine);
  const Half half(lane);
  for (int n = 0; n < kFewStages - 1; ++n) {
    if (n < chunks) copy_few(a, shared + n * stage_words, fn, x, num_rows, n * kFewSteps);
    __pipeline_commit();
  }
  float sums[kTokens][kRows] = {};
#pragma unroll 1
  for (int n = 0; n < chunks; ++n) {
    __pipeline_wait_prior(kFewStages - 2);
    __syncthreads();
    if (const int next = n + kFewStages - 1; next < chunks)
      copy_few(a, shared + next % kFewStages * stage_words, fn, x, num_rows, next * kFewSteps);
    __pipeline_commit();
    if (is_idle) continue;
    const uint32_t* stage = shared + n % kFewStages * stage_words;
    const uint32_t* of_token = stage + (kOut + token) * kFewStride;
    const int steps = min(kFewSteps, a.steps - n * kFewSteps);
    if (may_have_rows)
      add_steps<true>(of_token, tiles * kFewStride, reinterpret_cast<const float*>(stage) + group * kFewStride,
                      kGroups * kFewStride, half, steps, sums);
    else sums[0][0] = add_squares(of_token, half, steps, sums[0][0]);
  }
  if (is_idle) return;
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    if (token + i * tiles >= mine || (i > 0 && !may_have_rows)) break;
    float* to = a.sums + (first + token + i * tiles) * kSums * kLaneThreads + lane;
    if (!may_have_rows) to[kOut * kLaneThreads] = sums[0][0];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (may_have_rows) to[(group + r * kGroups) * kLaneThreads] = sums[i][r];
  }
}

// Many tokens: block (tokens, lanes): a warp has a lane, a thread six rows of four tokens and the squares of one.
constexpr int kManyTokens = 32, kManySteps = 32, kManyStride = kManySteps + kPad;
constexpr int kTileTokens = 4, kTileRows = kOut / kTileTokens;
template <int kLanes>
struct ManyStage {
  static constexpr int kPairStride = kManyTokens * kManyStride + 64 / kLanes;  // a warp's words in different banks
  alignas(16) float fn[kLanes * kOut * kManyStride];
  alignas(16) uint32_t x[kLanes / 2 * kPairStride];
};
template <int kLanes>
constexpr int kManyStages = kLanes == kLaneThreads ? 2 : 4;

// What a thread copies: the same steps and pair of every second token, the same steps of some rows of fn.
template <int kLanes>
struct ManyCopies {
  static constexpr int kThreads = 32 * kLanes, kWords = kLanes / 2, kPieces = kManySteps / kAtOnce;
  static constexpr int kTokensApart = kThreads / (kWords * kManySteps), kRowsApart = kThreads / kPieces;
  const uint32_t* x;
  const float* fn;
  int64_t x_apart;
  int fn_apart, num_x, x_step, fn_step, x_place, fn_place;

  __device__ ManyCopies(const StreamMixParams& p, const Arranged& a, int lane, int64_t first) {
    const int thread = static_cast<int>(threadIdx.x);
    const int pair = thread % kWords, token = thread / (kWords * kManySteps), row = thread / kPieces;
    x_step = thread / kWords % kManySteps, fn_step = thread % kPieces * kAtOnce;
    x = reinterpret_cast<const uint32_t*>(p.x.data + (first + token) * p.x.stride[0]) + x_step * kPairs + lane / 2 +
        pair;
    x_apart = kTokensApart * p.x.stride[0] / 2;
    fn = a.fn + (int64_t{lane} * kOut + row) * a.steps + fn_step;
    fn_apart = kRowsApart * a.steps;
    x_place = pair * ManyStage<kLanes>::kPairStride + token * kManyStride + x_step;
    fn_place = row * kManyStride + fn_step;
    num_x =
        static_cast<int>((min(p.x.size[0] - first, int64_t{kManyTokens}) - token + kTokensApart - 1) / kTokensApart);
  }
  // The next steps, of which there are `steps`.
  __device__ void copy(ManyStage<kLanes>& to, int steps) {
    if (fn_step < steps) {
#pragma unroll
      for (int i = 0; i < kLanes * kOut / kRowsApart; ++i)
        __pipeline_memcpy_async(to.fn + fn_place + i * kRowsApart * kManyStride, fn + i * fn_apart, 16);
    }
    const uint32_t* from = x;
    if (x_step < steps) {
#pragma unroll
      for (int i = 0; i < kManyTokens / kTokensApart; ++i, from += x_apart)
        if (i < num_x) __pipeline_memcpy_async(to.x + x_place + i * kTokensApart * kManyStride, from, 4);
    }
    x += kManySteps * kPairs, fn += kManySteps;
  }
};

template <int kLanes>
__global__ void __launch_bounds__(32 * kLanes) many_kernel(const __grid_constant__ StreamMixParams p, Arranged a) {
  begin_overlapped();
  extern __shared__ uint4 raw[];
  auto* stages = reinterpret_cast<ManyStage<kLanes>*>(raw);
  constexpr int kStages = kManyStages<kLanes>, kTokenGroups = kManyTokens / kTileTokens;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, group = thread % 4, token = thread % 32 / 4;
  const int lane = static_cast<int>(blockIdx.y) * kLanes, chunks = (a.steps + kManySteps - 1) / kManySteps;
  const int64_t first = int64_t{blockIdx.x} * kManyTokens;
  const Half half(warp);
  ManyCopies<kLanes> copies(p, a, lane, first);
  for (int n = 0; n < kStages - 1; ++n) {
    if (n < chunks) copies.copy(stages[n], a.steps - n * kManySteps);
    __pipeline_commit();
  }
  float sums[kTileTokens][kTileRows] = {}, squares = 0;
#pragma unroll 1
  for (int n = 0; n < chunks; ++n) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    if (const int next = n + kStages - 1; next < chunks)
      copies.copy(stages[next % kStages], a.steps - next * kManySteps);
    __pipeline_commit();
    const ManyStage<kLanes>& stage = stages[n % kStages];
    const uint32_t* x = stage.x + warp / 2 * ManyStage<kLanes>::kPairStride + token * kManyStride;
    const int steps = min(kManySteps, a.steps - n * kManySteps);
    add_steps<false>(x, kTokenGroups * kManyStride, stage.fn + (warp * kOut + group) * kManyStride, 4 * kManyStride,
                     half, steps, sums);
    squares = add_squares(x + group * kTokenGroups * kManyStride, half, steps, squares);
  }
#pragma unroll
  for (int i = 0; i < kTileTokens; ++i) {
    const int64_t t = first + token + i * kTokenGroups;
    if (t >= p.x.size[0]) break;
    float* to = a.sums + t * kSums * kLaneThreads + lane + warp;
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) to[(group + 4 * r) * kLaneThreads] = sums[i][r];
    if (i == group) to[kOut * kLaneThreads] = squares;
  }
}

// A warp has a token: thread o folds row o, then one a coefficient.
__global__ void __launch_bounds__(32) fold_kernel(const __grid_constant__ StreamMixParams p, const float* sums) {
  begin_overlapped();
  const int64_t t = blockIdx.x;
  const int i = static_cast<int>(threadIdx.x), kind = i < kStreams ? 0 : i < 2 * kStreams ? 1 : 2;
  float mixed = 0;
  if (i < kSums) {
    const auto* from = reinterpret_cast<const float4*>(sums + (t * kSums + i) * kLaneThreads);
    float lanes[kLaneThreads];
#pragma unroll
    for (int q = 0; q < kLaneThreads / 4; ++q) {
      const float4 four = from[q];
      lanes[4 * q] = four.x, lanes[4 * q + 1] = four.y, lanes[4 * q + 2] = four.z, lanes[4 * q + 3] = four.w;
    }
    mixed = fold_lanes(lanes);
  }
  const float squares = __shfl_sync(0xFFFFFFFFu, mixed, kOut);
  const float inverse = 1.f / sqrtf(squares / static_cast<float>(p.fn.in) + p.norm_epsilon);
  const float z = i < kOut ? mixed * inverse * p.scale[kind] + p.base[i] : 0.f;
  if (kind == 0) p.pre(t, i) = sigmoid_in_lanes(z) + p.epsilon;
  if (kind == 1) p.post(t, i - kStreams) = 2.f * sigmoid_in_lanes(z);
  float mine = __shfl_sync(0xFFFFFFFFu, z, 2 * kStreams + i % (kStreams * kStreams));
  mine = sinkhorn_together<kStreams>(mine, nullptr, kStreams, p.iterations, p.epsilon);
  if (i < kStreams * kStreams) p.comb(t, i / kStreams, i % kStreams) = mine;
}

bool takes(const StreamMixParams& p) {
  return p.x.size[1] == kStreams && p.fn.in % (kLaneThreads * kAtOnce) == 0 && p.x.stride[0] % 8 == 0 &&
         (reinterpret_cast<uintptr_t>(p.x.data) | reinterpret_cast<uintptr_t>(p.fn.data)) % 16 == 0;
}

constexpr int kTokenBlocks = 8;   // blocks of a lane: with sixteen lanes nearly as many as there are multiprocessors
constexpr int64_t kFewLeast = 5;  // for fewer arranging takes as long as a block a row
constexpr int64_t kFewMost = kTokenBlocks * kFewTokens;

// So much that a multiprocessor takes one block: blocks that begin while the kernel ahead leaves would crowd on those
// that are free first, and others stand idle.
int64_t alone(int64_t shared_bytes) { return std::max<int64_t>(shared_bytes, 116 << 10); }

template <int kTokens, int kRows>
void launch_few(const ExecutionContext& context, const Arranged& a, int64_t tokens) {
  const int num_tokens = static_cast<int>((tokens + kTokenBlocks - 1) / kTokenBlocks);
  const int threads =
      std::max(few_row_threads<kTokens, kRows>(num_tokens) + (num_tokens + 31) / 32 * 32, kFewThreadsLeast);
  const int64_t shared = alone(int64_t{kFewStages} * (kOut + num_tokens + kTokens - 1) * kFewStride * 4);
  launch_overlapped(context,
                    {dim3(kLaneThreads, num_blocks(tokens, num_tokens)), static_cast<unsigned>(threads), shared},
                    few_kernel<kTokens, kRows>, a, tokens, num_tokens);
}

template <int kLanes>
void launch_many(const ExecutionContext& context, const StreamMixParams& p, const Arranged& a) {
  const dim3 grid(num_blocks(p.x.size[0], kManyTokens), kLaneThreads / kLanes);
  const int64_t shared = alone(int64_t{kManyStages<kLanes>} * int64_t{sizeof(ManyStage<kLanes>)});
  launch_overlapped(context, {grid, 32 * kLanes, shared}, many_kernel<kLanes>, p, a);
}

void stream_mix_lanes_cuda(const ExecutionContext& context, const StreamMixParams& p) {
  const int64_t tokens = p.x.size[0];
  if (tokens == 0) return;
  if (tokens < kFewLeast || !takes(p)) return kStreamMixCuda(context, p);
  const Scratch::Frame frame(*context.scratch);
  const bool are_few = tokens <= kFewMost;
  const Arranged a{.fn = context.scratch->take<float>(kOut * p.fn.in),
                   .x = context.scratch->take<uint32_t>(are_few ? tokens * p.fn.in / 2 : 0),
                   .sums = context.scratch->take<float>(tokens * kSums * kLaneThreads),
                   .steps = static_cast<int>(p.fn.in / kLaneThreads)};
  const int64_t tiles = kOut * num_blocks(a.steps, kFnTile) + (are_few ? tokens * num_blocks(a.steps, kXTile) : 0);
  launch_overlapped(context, {static_cast<unsigned>(tiles), kArrangeThreads}, arrange_kernel, p, a);
  const int64_t blocks = num_blocks(tokens, kManyTokens), at_once = multiprocessor_count();
  if (tokens <= 8 * kTokenBlocks) launch_few<1, 1>(context, a, tokens);
  else if (tokens <= 16 * kTokenBlocks) launch_few<1, 3>(context, a, tokens);
  else if (are_few) launch_few<2, 4>(context, a, tokens);
  else if (4 * blocks <= at_once) launch_many<4>(context, p, a);
  else if (2 * blocks <= at_once) launch_many<8>(context, p, a);
  else launch_many<16>(context, p, a);
  launch_overlapped(context, {num_blocks(tokens, 1), 32}, fold_kernel, p, a.sums);
  context.device->launched("stream_mix");
}

}  // namespace

extern const Launch<StreamMixParams> kStreamMixLanesCuda = stream_mix_lanes_cuda;

}  // namespace deepinfer
