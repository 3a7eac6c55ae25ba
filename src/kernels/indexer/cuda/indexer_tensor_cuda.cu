// SPDX-License-Identifier: MIT
// Index scores on tensor cores. A warpgroup takes 64 keys at a time: a warp of its own fetches them by bulk copies, they are
// unpacked into the registers of the left operand (wgmma) and meet the queries of up to eight tokens of one sequence, two
// in one instruction. Rounded dot products go through relu and weight in pairs and are added up by one more product (mma.sync) with
// ones. Sums of small codes are exact but for extreme spreads of the scales, and so are sums of rounded terms: scores
// equal the reference's in all but rare last bits, and depend on nothing but the token and the key.
#include <algorithm>
#include <limits>

#include "kernels/indexer/indexer.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/linear/cuda/panel_product.cuh"
#include "kernels/quantize/cuda/unpack_pairs.cuh"

namespace deepinfer {

extern const Launch<IndexScoresParams> kIndexScoresCuda;

namespace {

constexpr int kGroups = 2, kWorkers = 128 * kGroups, kThreads = kWorkers + 32;  // warpgroups take tiles in turn; a warp fetches
constexpr int kHeads = 32, kHeadDim = 128, kTokens = 8, kPassTokens = 2, kTileKeys = 64, kStages = 4;
constexpr int kRowBytes = kHeadDim / 2 + kHeadDim / 32, kRun = 8, kRunBytes = kRun * kRowBytes;
constexpr int kRuns = kTileKeys / kRun;  // runs of neighbouring keys, copied as one
// Keys are unpacked 2^-32 too small, which leaves one multiplication a pair.
constexpr int kScaleBias = 126 - 32;
constexpr float kUnpackScale = 0x1p32f;
constexpr uint32_t kOnes = 0x3F803F80u;

template <int kGroupTokens>
struct Shared {
  static constexpr int kRows = kGroupTokens * kHeads;
  alignas(1024) uint8_t q[2][kRows * kPanelRowBytes];
  alignas(16) uint8_t keys[kGroups][kStages][kTileKeys * kRowBytes];
  uint4 weight[kGroupTokens][4];  // [c]: of heads 8 j + 2 c and the next, j = 0..3
  int visible[kGroupTokens];
  float* scores[kGroupTokens];  // the tokens' rows
  int run_entry[kGroups][kStages][kRuns];  // first entry of a run, -1 = none
  uint64_t full[kGroups][kStages], empty[kGroups][kStages];
};

// Columns of queries stand as the unpacked keys do: thread c of four has word 4 G + c of a group G of 32 columns; its
// pairs 0, 1 are columns 2 c and 2 c + 8 of the group's first instruction, pairs 2, 3 those of the second.
template <int kGroupTokens>
__device__ void load_queries(const IndexScoresParams& p, Shared<kGroupTokens>& s, int64_t first_token) {
  for (unsigned i = threadIdx.x; i < kGroupTokens * kHeads * kHeadDim / 8; i += kThreads) {
    const unsigned row = i / (kHeadDim / 8), word = i % (kHeadDim / 8), c = word % 4;
    const int64_t t = first_token + row / kHeads;
    uint4 eight{};
    if (t < p.q.size[0]) eight = permute_eight(*reinterpret_cast<const uint4*>(&p.q(t, row % kHeads, 8 * word)));
    const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned column = word / 4 * 32 + 8 * k + 2 * c;
      uint8_t* to = s.q[column / 64] + row * kPanelRowBytes + ((column % 64 / 8 ^ row % 8) << 4);
      *reinterpret_cast<uint32_t*>(to + 4 * c) = pairs[k];
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < kGroupTokens * 16; i += kThreads) {
    const int token = i / 16, c = i % 16 / 4, j = i % 4;
    const int64_t t = first_token + token, h = 8 * j + 2 * c;
    uint32_t pair = 0;
    if (t < p.q.size[0])
      pair = to_bf16(to_float(p.weight(t, h)) * p.weight_scale).bits |
             static_cast<uint32_t>(to_bf16(to_float(p.weight(t, h + 1)) * p.weight_scale).bits) << 16;
    reinterpret_cast<uint32_t*>(&s.weight[token][c])[j] = pair;
    if (i % 16 == 0) {
      s.visible[token] = t < p.q.size[0] ? p.num_visible(t) : 0;
      s.scores[token] = t < p.q.size[0] ? p.scores.row(t) : nullptr;
    }
  }
}

// The tokens [begin, end) of the group share a lane; `limit`: places of their rows of scores that have an entry at most.
struct Batch {
  int64_t group_first;
  int begin, end;
  int64_t limit;
};

__device__ uint32_t relu_two(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// sums[0], sums[2]: of all columns of rows g and g + 8.
__device__ void add_columns(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%8}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(kOnes));
}

// The place that a warpgroup's n-th tile of a range begins at, and how many tiles it has of `places`.
__device__ int64_t tile_place(int64_t begin, int group, int64_t n) { return begin + (n * kGroups + group) * kTileKeys; }
__device__ int64_t num_tiles_of(int64_t places, int group) {
  const int64_t left = places - group * kTileKeys;
  return left <= 0 ? 0 : (left + kGroups * kTileKeys - 1) / (kGroups * kTileKeys);
}

// One warp for all warpgroups: a lane a run, four tiles at a time.
template <int kGroupTokens>
struct Fetcher {
  const IndexScoresParams& p;
  Shared<kGroupTokens>& s;
  int lane;
  uint32_t num_tiles[kGroups];  // so far

  __device__ int64_t entry_of(const Batch& batch, int64_t place) const {
    if (!p.candidates.data) return place;
    const uint32_t size = p.candidate_block_size, at = static_cast<uint32_t>(place);
    const int block = p.candidates(batch.group_first + batch.begin, at / size);
    return block == kNoEntry ? -1 : int64_t{block} * size + at % size;
  }
  __device__ void fetch(const Batch& batch, int64_t begin, int64_t end, int64_t n, int group) {
    const int64_t place = tile_place(begin, group, n) + lane % kRuns * kRun;
    const bool is_mine = n < num_tiles_of(end - begin, group);
    const int64_t entry = is_mine && place < batch.limit ? entry_of(batch, place) : -1;
    const bool is_read = entry >= 0 && (!p.candidates.data || entry < s.visible[batch.begin]);
    const uint8_t* from = is_read ? p.keys.row(p.lane(batch.group_first + batch.begin), entry) : nullptr;
    const uint32_t use = num_tiles[group] + static_cast<uint32_t>(n), stage = use % kStages;
    if (is_mine) wait_for(s.empty[group][stage], (use / kStages & 1) ^ 1);
    if (is_mine) s.run_entry[group][stage][lane % kRuns] = static_cast<int>(entry);
    const unsigned reads = __ballot_sync(0xFFFFFFFFu, is_read) >> (lane / kRuns * kRuns) & ((1u << kRuns) - 1);
    if (is_mine && lane % kRuns == 0)
      arrive_and_expect(s.full[group][stage], static_cast<uint32_t>(__popc(reads)) * kRunBytes);
    __syncwarp();
    // A tile inside one block is one copy.
    const bool is_whole = !p.candidates.data && p.keys.rows_per_block % kTileKeys == 0;
    if (is_read && (!is_whole || lane % kRuns == 0))
      copy_bulk(s.keys[group][stage] + lane % kRuns * kRunBytes, from,
                is_whole ? static_cast<uint32_t>(__popc(reads)) * kRunBytes : kRunBytes, s.full[group][stage]);
  }
  __device__ void fetch_range(const Batch& batch, int64_t begin, int64_t end) {
    const int tile = lane / kRuns, group = tile % kGroups;
    for (int64_t n = 0; n < num_tiles_of(end - begin, 0); n += 32 / kRuns / kGroups)
      fetch(batch, begin, end, n + tile / kGroups, group);
    for (int g = 0; g < kGroups; ++g) num_tiles[g] += static_cast<uint32_t>(num_tiles_of(end - begin, g));
  }
};

template <int kGroupTokens, bool kHasCandidates>
struct Scorer {
  const IndexScoresParams& p;
  Shared<kGroupTokens>& s;
  int group, warp, lane;  // of the block, of the warpgroup, of the warp
  uint32_t num_tiles;     // so far
  uint64_t queries[2];    // descriptors: of columns 0..63 and 64..127 of the first token

  // The left operand of the eight instructions of a tile.
  __device__ void unpack(const uint8_t* keys, uint32_t (&a)[8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint8_t* row = keys + (16 * warp + 8 * half + lane / 4) * kRowBytes;
      const uint32_t scales = *reinterpret_cast<const uint32_t*>(row + kHeadDim / 2);
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        const uint32_t exponent = min((scales >> (8 * block) & 0xFF) + kScaleBias, 254u);
        const uint4 pairs = unpack_e2m1(*reinterpret_cast<const uint32_t*>(row + 16 * block + lane % 4 * 4),
                                        exponent << 7 | exponent << 23);
        a[2 * block][half] = pairs.x, a[2 * block][2 + half] = pairs.y;
        a[2 * block + 1][half] = pairs.z, a[2 * block + 1][2 + half] = pairs.w;
      }
    }
  }
  template <int kMany>
  __device__ void multiply(const uint32_t (&a)[8][4], int first_token, float (&dots)[16 * kMany]) {
    const uint64_t row = static_cast<uint64_t>(first_token * (kHeads * kPanelRowBytes / 16));
#pragma unroll
    for (int i = 0; i < 16 * kMany; ++i) dots[i] = 0;
    fence_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) wgmma_bf16(dots, a[k], queries[k / 4] + row + k % 4 * 2);
    commit_products();
    wait_for_products<0>();
#pragma unroll
    for (int i = 0; i < 16 * kMany; ++i) asm volatile("" : "+f"(dots[i])::"memory");
  }
  // Scores of rows g and g + 8 from the dot products with one token's heads.
  __device__ float2 add_heads(const float* dots, int token) {
    const uint4 weight = s.weight[token][lane % 4];
    const uint32_t weights[4] = {weight.x, weight.y, weight.z, weight.w};
    uint32_t low[4], high[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = multiply_two(relu_two(dots[4 * j], dots[4 * j + 1]), weights[j]);
      high[j] = multiply_two(relu_two(dots[4 * j + 2], dots[4 * j + 3]), weights[j]);
    }
    float sums[4] = {};
    add_columns(sums, low[0], high[0], low[1], high[1]);
    add_columns(sums, low[2], high[2], low[3], high[3]);
    const __nv_bfloat162 both = __floats2bfloat162_rn(sums[0], sums[2]);
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(&both);
    return {__uint_as_float(bits << 16) * kUnpackScale, __uint_as_float(bits & 0xFFFF0000u) * kUnpackScale};
  }
  // `run`: of eight keys, of the warp's two; without candidates an entry is its place.
  __device__ void write(const Batch& batch, int stage, int token, int place, int run, float score) {
    if (token < batch.begin || token >= batch.end) return;
    if constexpr (kHasCandidates) {
      const int first = s.run_entry[group][stage][2 * warp + run], entry = first + lane / 4;
      if (first >= 0)
        s.scores[token][place] = entry < s.visible[token] ? score : -std::numeric_limits<float>::infinity();
    } else if (place < s.visible[token]) {
      s.scores[token][place] = score;
    }
  }
  __device__ void score_tile(const Batch& batch, int stage, int place) {
    uint32_t a[8][4];
    unpack(s.keys[group][stage], a);
    if constexpr (!kHasCandidates) give_back(stage);
    const int c = lane % 4;
    place += 16 * warp + lane / 4;
    if (kGroupTokens == 1 || batch.end - batch.begin == 1) {
      float dots[16];
      multiply<1>(a, batch.begin, dots);
      const float2 both = add_heads(dots, batch.begin);
      if (c < 2) write(batch, stage, batch.begin, place + 8 * c, c, c == 0 ? both.x : both.y);
    } else if constexpr (kGroupTokens > 1) {
#pragma unroll 1
      for (int token = batch.begin / kPassTokens * kPassTokens; token < batch.end; token += kPassTokens) {
        float dots[16 * kPassTokens];
        multiply<kPassTokens>(a, token, dots);
        const float2 one = add_heads(dots, token), two = add_heads(dots + 16, token + 1);
        const float low = c < 2 ? one.x : two.x, high = c < 2 ? one.y : two.y;
        write(batch, stage, token + c / 2, place + c % 2 * 8, c % 2, c % 2 == 0 ? low : high);
      }
    }
    if constexpr (kHasCandidates) give_back(stage);
  }
  __device__ void give_back(int stage) {
    __syncwarp();
    if (lane == 0) arrive(s.empty[group][stage]);
  }
  __device__ void score_range(const Batch& batch, int64_t begin, int64_t end) {
    const int64_t count = num_tiles_of(end - begin, group);
    for (int64_t n = 0; n < count; ++n) {
      const uint32_t use = num_tiles + static_cast<uint32_t>(n);
      wait_for(s.full[group][use % kStages], use / kStages & 1);
      score_tile(batch, static_cast<int>(use % kStages), static_cast<int>(tile_place(begin, group, n)));
    }
    num_tiles += static_cast<uint32_t>(count);
  }
};

// Tokens of the group that share a lane from `begin` on. With candidates every token has entries of its own.
__device__ Batch batch_at(const IndexScoresParams& p, int64_t group_first, int begin, int tokens) {
  const int64_t t = group_first + begin;
  if (p.candidates.data) return {group_first, begin, begin + 1, p.scores.size[1]};
  Batch batch{group_first, begin, begin + 1, p.num_visible(t)};
  for (; batch.end < tokens && p.lane(group_first + batch.end) == p.lane(t); ++batch.end) {
    const int64_t visible = p.num_visible(group_first + batch.end);
    batch.limit = batch.limit < visible ? visible : batch.limit;
  }
  return batch;
}

template <int kGroupTokens, bool kHasCandidates>
__global__ void __launch_bounds__(kThreads, 2) scores_kernel(const __grid_constant__ IndexScoresParams p,
                                                             int64_t places_each) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ __align__(1024) uint8_t shared[];
  auto& s = *reinterpret_cast<Shared<kGroupTokens>*>(shared);
  const int64_t first = int64_t{blockIdx.y} * kGroupTokens, begin = int64_t{blockIdx.x} * places_each;
  const int64_t left = p.q.size[0] - first;
  const int tokens = static_cast<int>(left < kGroupTokens ? left : kGroupTokens), thread = static_cast<int>(threadIdx.x);
  if (thread < kGroups * kStages) {
    init_barrier(s.full[thread / kStages][thread % kStages], 1);
    init_barrier(s.empty[thread / kStages][thread % kStages], 4);
  }
  begin_overlapped();
  load_queries(p, s, first);
  publish_barriers();
  __syncthreads();
  const auto for_each_batch = [&](auto& worker, auto range) {
    for (int t = 0; t < tokens;) {
      const Batch batch = batch_at(p, first, t, tokens);
      const int64_t end = begin + places_each < batch.limit ? begin + places_each : batch.limit;
      if (begin < end) (worker.*range)(batch, begin, end);
      t = batch.end;
    }
  };
  if (thread >= kWorkers) {
    Fetcher<kGroupTokens> fetcher{p, s, thread % 32, {}};
    for_each_batch(fetcher, &Fetcher<kGroupTokens>::fetch_range);
  } else {
    using Worker = Scorer<kGroupTokens, kHasCandidates>;
    const int warp = __shfl_sync(0xFFFFFFFFu, thread / 32, 0);
    Worker scorer{p, s, warp / 4, warp % 4, thread % 32, 0,
                  {swizzled_descriptor(shared_address(s.q[0]), 0), swizzled_descriptor(shared_address(s.q[1]), 0)}};
    for_each_batch(scorer, &Worker::score_range);
  }
#endif
}

bool takes(const IndexScoresParams& p) {
  const bool is_aligned =
      (reinterpret_cast<uintptr_t>(p.keys.base) | static_cast<uintptr_t>(p.keys.block_stride_bytes)) % 16 == 0 &&
      (reinterpret_cast<uintptr_t>(p.q.data) | static_cast<uintptr_t>(2 * p.q.stride[0])) % 16 == 0;
  return p.rounding == ScoreRounding::kReference && p.q.size[1] == kHeads && p.q.size[2] == kHeadDim && is_aligned &&
         p.keys.row_stride_bytes == kRowBytes && p.keys.rows_per_block % kRun == 0 &&
         (!p.candidates.data || p.candidate_block_size % kRun == 0);
}

// One round of blocks, each with as many keys as there are for it: what a block does first costs as much as some tiles.
template <int kGroupTokens, bool kHasCandidates>
void launch_scores(const ExecutionContext& context, const IndexScoresParams& p) {
  constexpr int64_t kPair = kGroups * kTileKeys, kBlocksEach = 2;  // of a multiprocessor at a time
  const auto kernel = scores_kernel<kGroupTokens, kHasCandidates>;
  const int64_t groups = num_blocks(p.q.size[0], kGroupTokens), pairs = num_blocks(p.scores.size[1], kPair);
  const int64_t at_once = std::max<int64_t>(1, kBlocksEach * multiprocessor_count() / groups);  // blocks of a group
  const int64_t pairs_each = num_blocks(pairs, at_once);
  const dim3 grid(num_blocks(pairs, pairs_each), static_cast<unsigned>(groups));
  allow_shared_memory(kernel, sizeof(Shared<kGroupTokens>));
  launch_overlapped(context, {grid, kThreads, sizeof(Shared<kGroupTokens>)}, kernel, p, pairs_each * kPair);
}

void launch_any(const ExecutionContext& context, const IndexScoresParams& p) {
  if (p.candidates.data) launch_scores<1, true>(context, p);
  else if (p.q.size[0] == 1) launch_scores<1, false>(context, p);
  else launch_scores<kTokens, false>(context, p);
}

void index_scores_tensor_cuda(const ExecutionContext& context, const IndexScoresParams& p) {
  if (p.scores.num_elements() == 0 || p.q.num_elements() == 0) return;
  if (!kHasWarpgroups || !takes(p)) return kIndexScoresCuda(context, p);
  launch_any(context, p);
  context.device->launched("index_scores");
}

}  // namespace

extern const Launch<IndexScoresParams> kIndexScoresTensorCuda = index_scores_tensor_cuda;

}  // namespace deepinfer
