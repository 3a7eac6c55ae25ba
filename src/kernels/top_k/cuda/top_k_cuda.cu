// SPDX-License-Identifier: MIT
// Exact selection by radix. A cluster of up to eight blocks serves one token; every warp owns a run of neighbouring
// candidates, so that order is a matter of counts. First a bound: with b blocks, the (k / b)-th highest of a block's 1,024
// partial maxima has as many candidates at or above it in that block, so the lowest of the blocks' is a bound for the k.
// The few candidates that reach it go to one block, which narrows down the k-th highest key in passes over 11, 11 and 10
// bits and keeps what lies above and as many of its equals as fit, lowest place first. Where too many reach the bound
// (equal scores) all blocks make the passes over everything and add up each other's histograms. The number of blocks shows
// nowhere in the result.
#include <cooperative_groups.h>

#include <algorithm>
#include <limits>

#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/top_k/top_k.h"

namespace deepinfer {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512, kWarps = kThreads / 32, kDigits = 2048, kBlocksMax = 8;
constexpr int kMaximaEach = 2, kMaxima = kMaximaEach * kThreads, kSurvivorsMax = 8 << 10;
constexpr int64_t kWorthSplitting = 4 << 10;  // candidates of a block

// Orders as the score does; -0 counts as +0 and NaN has a fixed place.
__device__ uint32_t ordered_key(float score) {
  const uint32_t u = __float_as_uint(score);  // no addition of zero as on the host: it would make all NaN the same
  return u == 0x80000000u ? u : u >> 31 ? ~u : u | 0x80000000u;
}

// Candidates of a token: places [0, count) with a key and an entry.
struct ListedScores {
  const float* scores;     // null: all the same
  const int32_t* blocks;   // null: place = entry
  int64_t count;
  int size;  // of a listed block
  __device__ uint32_t key(int64_t i) const { return ordered_key(scores ? scores[i] : 0.f); }
  __device__ int32_t entry(int64_t i) const {
    return blocks ? blocks[i / size] * size + static_cast<int32_t>(i % size) : static_cast<int32_t>(i);
  }
};

struct BlockMaxima {
  const float* scores;
  int64_t visible, count, size;
  __device__ uint32_t key(int64_t b) const {
    float highest = -std::numeric_limits<float>::infinity();
    if (b == count - 1) return ordered_key(-highest);  // the block of the newest visible entry
    const float* first = scores + b * size;
    if (size == 8 && reinterpret_cast<uintptr_t>(first) % 16 == 0) {
      const float4 low = reinterpret_cast<const float4*>(first)[0], high = reinterpret_cast<const float4*>(first)[1];
      const float eight[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) highest = highest < eight[i] ? eight[i] : highest;
    } else {
      for (int64_t i = 0; i < size; ++i) highest = highest < first[i] ? first[i] : highest;
    }
    return ordered_key(highest);
  }
  __device__ int32_t entry(int64_t b) const { return static_cast<int32_t>(b); }
};

// Keys in shared memory, with the places they have in another source.
template <typename Source>
struct Survivors {
  const Source& source;
  const uint32_t* keys;
  const int32_t* places;
  int64_t count;
  __device__ uint32_t key(int64_t i) const { return keys[i]; }
  __device__ int32_t entry(int64_t i) const { return source.entry(places[i]); }
};

struct Shared {
  int histogram[2][kDigits];  // in turn: neighbours may still read the one before
  int above[kWarps], equal[kWarps], sums[kWarps];
  int num_above, num_equal;  // of the block
  uint32_t cut, bound;
  int wanted, is_settled;
};

// Who works together: the blocks of the cluster, or one block alone.
struct Team {
  int num_blocks, rank;
  __device__ void sync() const {
    if (num_blocks > 1) cg::this_cluster().sync();
    else __syncthreads();
  }
  template <typename T>
  __device__ T* of(T* mine, int block) const {
    return num_blocks > 1 ? cg::this_cluster().map_shared_rank(mine, static_cast<unsigned>(block)) : mine;
  }
};

// The k-th highest key as far as it matters: keys are compared from bit `shift` on; `wanted` equals belong to the k.
struct Cut {
  uint32_t key;
  int wanted, shift;
};

// A warp's run of candidates.
template <typename Source>
struct Run {
  const Source& source;
  int64_t begin, end;

  template <typename Body>
  __device__ void for_each(const Body& body) const {
#pragma unroll 8
    for (int64_t i = begin + threadIdx.x % 32; i < end; i += 32) body(i, source.key(i));
  }
};
template <typename Source>
__device__ Run<Source> run_of(const Team& team, const Source& source) {
  const int64_t warps = team.num_blocks * kWarps, each = (source.count + 32 * warps - 1) / (32 * warps) * 32;
  const int64_t begin = min((team.rank * kWarps + threadIdx.x / 32) * each, source.count);
  return {source, begin, min(begin + each, source.count)};
}

__device__ int add_over_warp(int value) {
  for (int half = 16; half > 0; half /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, half);
  return value;
}
__device__ int sum_up_to(int value, int lane) {  // of lanes 0 .. lane
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFu, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// Finds the digit that holds the wanted-th highest key and takes what lies above off `wanted`.
__device__ void choose_digit(const Team& team, Shared& s, int which, int shift) {
  constexpr int kEach = kDigits / kThreads;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int top = kDigits - 1 - kEach * thread;  // this thread's digits go down from it
  int counts[kEach] = {}, mine = 0;
  for (int b = 0; b < team.num_blocks; ++b) {
    const int4 four = *reinterpret_cast<const int4*>(team.of(s.histogram[which], b) + top - (kEach - 1));
    counts[0] += four.w, counts[1] += four.z, counts[2] += four.y, counts[3] += four.x;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) mine += counts[i];
  const int up_to = sum_up_to(mine, lane);
  if (lane == 31) s.sums[warp] = up_to;
  const int wanted = s.wanted;
  __syncthreads();
  int before = up_to - mine;
  for (int w = 0; w < warp; ++w) before += s.sums[w];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (before < wanted && wanted <= before + counts[i]) {
      s.cut |= static_cast<uint32_t>(top - i) << shift;
      s.wanted = wanted - before;
      s.is_settled = wanted - before == counts[i];
    }
    before += counts[i];
  }
  __syncthreads();
}

template <typename Source>
__device__ Cut find_cut(const Team& team, const Run<Source>& run, Shared& s, int k) {
  constexpr int kHigh = 21, kMiddle = 10;
  __syncthreads();
  if (threadIdx.x == 0) s.cut = 0, s.wanted = k, s.is_settled = 0;
  for (int pass = 0;; ++pass) {
    int* histogram = s.histogram[pass % 2];
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kThreads) histogram[d] = 0;
    __syncthreads();
    const uint32_t prefix = s.cut, digits = pass == 2 ? (1u << kMiddle) - 1 : kDigits - 1;
    const int shift = pass == 0 ? kHigh : pass == 1 ? kMiddle : 0, above = pass == 1 ? kHigh : kMiddle;
    run.for_each([&](int64_t, uint32_t key) {
      if (pass == 0 || (key ^ prefix) >> above == 0) atomicAdd(&histogram[key >> shift & digits], 1);
    });
    team.sync();
    choose_digit(team, s, pass % 2, shift);
    if (pass == 2 || s.is_settled) return {s.cut, s.wanted, shift};
  }
}

// Counts of warps and blocks before this one, from s.above and s.equal of every warp.
struct Before {
  int above, equal, all_above;
};
__device__ Before add_up_to(const Team& team, Shared& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();
  if (warp == 0) {
    const int above = add_over_warp(lane < kWarps ? s.above[lane] : 0), equal = add_over_warp(lane < kWarps ? s.equal[lane] : 0);
    if (lane == 0) s.num_above = above, s.num_equal = equal;
  }
  team.sync();
  Before before{};
  for (int b = 0; b < team.num_blocks; ++b) {
    const int above = *team.of(&s.num_above, b);
    before.all_above += above;
    if (b < team.rank) before.above += above, before.equal += *team.of(&s.num_equal, b);
  }
  for (int w = 0; w < warp; ++w) before.above += s.above[w], before.equal += s.equal[w];
  return before;
}

template <typename Source>
__device__ void write_best(const Team& team, const Run<Source>& run, Shared& s, const Cut& cut, int32_t* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t limit = cut.key >> cut.shift;
  int above = 0, equal = 0;
  run.for_each([&](int64_t, uint32_t key) {
    above += key >> cut.shift > limit;
    equal += key >> cut.shift == limit;
  });
  above = add_over_warp(above), equal = add_over_warp(equal);
  if (lane == 0) s.above[warp] = above, s.equal[warp] = equal;
  const Before before = add_up_to(team, s);
  int equal_before = before.equal, written = before.above + min(equal_before, cut.wanted);
  for (int64_t begin = run.begin; begin < run.end; begin += 32) {
    const int64_t i = begin + lane;
    const uint32_t key = i < run.end ? run.source.key(i) >> cut.shift : 0;
    const unsigned lower = (1u << lane) - 1;
    const unsigned equals = __ballot_sync(0xFFFFFFFFu, i < run.end && key == limit);
    const bool fits = equal_before + __popc(equals & lower) < cut.wanted;
    const bool is_kept = i < run.end && (key > limit || (key == limit && fits));
    const unsigned kept = __ballot_sync(0xFFFFFFFFu, is_kept);
    if (is_kept) out[written + __popc(kept & lower)] = run.source.entry(i);
    written += __popc(kept), equal_before += __popc(equals);
  }
}

// A key that at least k of the team's candidates reach.
template <typename Source>
__device__ uint32_t find_bound(const Team& team, const Run<Source>& run, Shared& s, int k, uint32_t* maxima) {
  uint32_t highest[kMaximaEach] = {};
  int turn = 0;
  run.for_each([&](int64_t, uint32_t key) {
    if (turn ^= 1) highest[0] = max(highest[0], key);
    else highest[1] = max(highest[1], key);
  });
  maxima[threadIdx.x] = highest[0], maxima[threadIdx.x + kThreads] = highest[1];
  const Survivors<Source> all{run.source, maxima, nullptr, kMaxima};
  const Team alone{1, 0};
  const Cut cut = find_cut(alone, run_of(alone, all), s, (k + team.num_blocks - 1) / team.num_blocks);
  if (threadIdx.x == 0) s.bound = cut.key;
  team.sync();
  uint32_t bound = 0xFFFFFFFFu;
  for (int b = 0; b < team.num_blocks; ++b) bound = min(bound, *team.of(&s.bound, b));
  return bound;
}

// Collects the candidates that reach the bound, in order, in the first block. The number, or -1: too many, none collected.
template <typename Source>
__device__ int collect(const Team& team, const Run<Source>& run, Shared& s, uint32_t bound, uint32_t* keys, int32_t* places) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int reached = 0;
  run.for_each([&](int64_t, uint32_t key) { reached += key >= bound; });
  reached = add_over_warp(reached);
  if (lane == 0) s.above[warp] = reached, s.equal[warp] = 0;
  const Before before = add_up_to(team, s);
  if (before.all_above > kSurvivorsMax) return -1;
  uint32_t* to = team.of(keys, 0);
  int32_t* to_place = team.of(places, 0);
  int at = before.above;
  for (int64_t begin = run.begin; begin < run.end && reached > 0; begin += 32) {
    const int64_t i = begin + lane;
    const uint32_t key = i < run.end ? run.source.key(i) : 0;
    const unsigned hits = __ballot_sync(0xFFFFFFFFu, i < run.end && key >= bound);
    if (hits >> lane & 1) {
      const int place = at + __popc(hits & ((1u << lane) - 1));
      to[place] = key, to_place[place] = static_cast<int32_t>(i);
    }
    at += __popc(hits);
  }
  team.sync();
  return before.all_above;
}

template <typename Source>
__device__ void select(const Source& source, int64_t k, int32_t* out) {
  extern __shared__ uint32_t keys[];
  __shared__ Shared s;
  auto* places = reinterpret_cast<int32_t*>(keys + kSurvivorsMax);
  const Team team{static_cast<int>(cg::this_cluster().num_blocks()), static_cast<int>(cg::this_cluster().block_rank())};
  if (source.count <= k) {
    for (int64_t i = team.rank * kThreads + threadIdx.x; i < k; i += team.num_blocks * kThreads)
      out[i] = i < source.count ? source.entry(i) : kNoEntry;
    return;
  }
  const Run<Source> run = run_of(team, source);
  int collected = -1;
  if (k <= team.num_blocks * kMaxima) {
    const uint32_t bound = find_bound(team, run, s, static_cast<int>(k), keys);
    collected = collect(team, run, s, bound, keys, places);
  }
  if (collected >= 0) {
    if (team.rank > 0) return;
    const Team alone{1, 0};
    const Survivors<Source> survivors{source, keys, places, collected};
    const auto all = run_of(alone, survivors);
    return write_best(alone, all, s, find_cut(alone, all, s, static_cast<int>(k)), out);
  }
  write_best(team, run, s, find_cut(team, run, s, static_cast<int>(k)), out);
  team.sync();  // neighbours may still read counts
}

__global__ void __launch_bounds__(kThreads, 2) top_k_kernel(TopKParams p) {
  begin_overlapped();
  const int64_t t = blockIdx.x / cg::this_cluster().num_blocks(), visible = p.num_visible(t);
  const float* scores = p.scores.data ? p.scores.row(t) : nullptr;
  if (!p.candidates.data) return select(ListedScores{scores, nullptr, visible, 1}, p.out.size[1], p.out.row(t));
  // Listed blocks ascend, so the visible candidates are the first ones.
  const int32_t* blocks = p.candidates.row(t);
  const int64_t size = p.candidate_block_size;
  int64_t num_seen = 0;
  for (int64_t begin = 0; begin < p.candidates.size[1]; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    num_seen += __syncthreads_count(i < p.candidates.size[1] && blocks[i] != kNoEntry && blocks[i] * size < visible);
  }
  int64_t count = num_seen * size;
  if (num_seen > 0) count -= max((blocks[num_seen - 1] + int64_t{1}) * size - visible, int64_t{0});
  select(ListedScores{scores, blocks, count, static_cast<int>(size)}, p.out.size[1], p.out.row(t));
}

__global__ void __launch_bounds__(kThreads, 2) candidate_blocks_kernel(CandidateBlocksParams p) {
  begin_overlapped();
  const int64_t t = blockIdx.x / cg::this_cluster().num_blocks(), visible = p.num_visible(t), size = p.block_size;
  const float* scores = p.scores.data ? p.scores.row(t) : nullptr;
  select(BlockMaxima{scores, visible, (visible + size - 1) / size, size}, p.out.size[1], p.out.row(t));
}

// As many blocks a token as find a multiprocessor each, up to kBlocksMax.
template <typename Params>
void launch_selection(const ExecutionContext& context, void (*kernel)(Params), const Params& p, int64_t tokens,
                      int64_t candidates_max) {
  constexpr int kShared = kSurvivorsMax * 8;
  int64_t blocks = 1;
  while (blocks < kBlocksMax && 2 * blocks * tokens <= multiprocessor_count() &&
         2 * blocks * kWorthSplitting <= candidates_max)
    blocks *= 2;
  launch_overlapped(context,
                    {static_cast<unsigned>(tokens * blocks), kThreads, kShared, static_cast<unsigned>(blocks)}, kernel, p);
}

void top_k_cuda(const ExecutionContext& context, const TopKParams& p) {
  if (p.out.num_elements() == 0) return;
  const int64_t most = p.candidates.data ? p.candidates.size[1] * p.candidate_block_size : p.scores.size[1];
  launch_selection(context, top_k_kernel, p, p.out.size[0], most);
  context.device->launched("top_k");
}

void candidate_blocks_cuda(const ExecutionContext& context, const CandidateBlocksParams& p) {
  if (p.out.num_elements() == 0) return;
  launch_selection(context, candidate_blocks_kernel, p, p.out.size[0], p.scores.size[1] / p.block_size + 1);
  context.device->launched("candidate_blocks");
}

}  // namespace

extern const Launch<TopKParams> kTopKCuda = top_k_cuda;
extern const Launch<CandidateBlocksParams> kCandidateBlocksCuda = candidate_blocks_cuda;

}  // namespace deepinfer
