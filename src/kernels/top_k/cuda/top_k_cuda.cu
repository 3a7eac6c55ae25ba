// SPDX-License-Identifier: MIT
// Exact selection by radix: four passes over the candidates find the k-th highest key, one more writes what lies above
// it and as many of its equals as fit, lowest index first. A block serves one token; nothing depends on its neighbours.
#include <limits>

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/top_k/top_k.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kDigits = 256;

// Orders as the score does; -0 counts as +0 and NaN has a fixed place.
__device__ uint32_t ordered_key(float score) {
  const uint32_t u = __float_as_uint(score + 0.f);
  return u >> 31 ? ~u : u | 0x80000000u;
}

struct Candidate {
  bool is_valid;
  uint32_t key;
  int32_t entry;
};

// Adds a flag over the block: how many are set before this thread's, and in all.
struct Rank {
  int before, total;
};
__device__ Rank rank_of(bool flag, int* warp_counts) {
  const unsigned votes = __ballot_sync(0xFFFFFFFFu, flag);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();  // warp_counts may still be read
  if (lane == 0) warp_counts[warp] = __popc(votes);
  __syncthreads();
  Rank rank{__popc(votes & ((1u << lane) - 1)), 0};
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) rank.before += warp_counts[w];
    rank.total += warp_counts[w];
  }
  return rank;
}

// The key of rank k (1 = the highest) among the valid candidates, and how many of its equals belong to the k.
struct Cut {
  uint32_t key;
  int num_equal;
};
template <typename Source>
__device__ Cut find_cut(const Source& source, int64_t count, int64_t k, int* histogram, Cut* shared) {
  uint32_t prefix = 0;
  int64_t wanted = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kThreads) histogram[d] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < count; i += kThreads) {
      const Candidate c = source(i);
      const bool is_inside = shift == 24 || (c.key ^ prefix) >> (shift + 8) == 0;
      if (c.is_valid && is_inside) atomicAdd(&histogram[c.key >> shift & 0xFF], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = kDigits - 1;
      for (; digit > 0 && histogram[digit] < wanted; --digit) wanted -= histogram[digit];
      *shared = {prefix | static_cast<uint32_t>(digit) << shift, static_cast<int>(wanted)};
    }
    __syncthreads();
    prefix = shared->key;
    wanted = shared->num_equal;
  }
  return {prefix, static_cast<int>(wanted)};
}

// Writes the entries of the k best candidates in the order of their places, then kNoEntry.
template <typename Source>
__device__ void select(const Source& source, int64_t count, int64_t k, int32_t* out) {
  __shared__ int histogram[kDigits], warp_counts[kWarps];
  __shared__ Cut cut_found;
  int num_valid = 0;
  for (int64_t begin = 0; begin < count; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    num_valid += rank_of(i < count && source(i).is_valid, warp_counts).total;
  }
  Cut cut{0, 0};
  if (num_valid > k) cut = find_cut(source, count, k, histogram, &cut_found);
  const bool takes_all = num_valid <= k;
  int written = 0, equals_seen = 0;
  for (int64_t begin = 0; begin < count; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    const Candidate c = i < count ? source(i) : Candidate{};
    const Rank equal = rank_of(c.is_valid && c.key == cut.key, warp_counts);
    const bool is_kept = c.is_valid && (takes_all || c.key > cut.key ||
                                        (c.key == cut.key && equals_seen + equal.before < cut.num_equal));
    equals_seen += equal.total;
    const Rank place = rank_of(is_kept, warp_counts);
    if (is_kept) out[written + place.before] = c.entry;
    written += place.total;
  }
  for (int64_t i = written + threadIdx.x; i < k; i += kThreads) out[i] = kNoEntry;
}

__device__ void write_all(int64_t count, int64_t k, int32_t* out) {
  for (int64_t i = threadIdx.x; i < k; i += kThreads) out[i] = i < count ? static_cast<int32_t>(i) : kNoEntry;
}

__global__ void top_k_kernel(TopKParams p) {
  const int64_t t = blockIdx.x, k = p.out.size[1], visible = p.num_visible(t);
  if (!p.candidates.data) {
    if (visible <= k) return write_all(visible, k, p.out.row(t));
    const float* scores = p.scores.row(t);
    return select(
        [&](int64_t i) { return Candidate{true, ordered_key(scores[i]), static_cast<int32_t>(i)}; }, visible, k,
        p.out.row(t));
  }
  const int32_t* blocks = p.candidates.row(t);
  const int size = p.candidate_block_size;
  const auto listed = [&](int64_t i) {  // kNoEntry pads at the end, so nothing valid stands behind it
    const int32_t block = blocks[i / size];
    const int64_t entry = int64_t{block} * size + i % size;
    const bool is_valid = block != kNoEntry && entry < visible;
    return Candidate{is_valid, is_valid && p.scores.data ? ordered_key(p.scores(t, i)) : ordered_key(0.f),
                     static_cast<int32_t>(entry)};
  };
  select(listed, p.candidates.size[1] * size, k, p.out.row(t));
}

__global__ void candidate_blocks_kernel(CandidateBlocksParams p) {
  const int64_t t = blockIdx.x, visible = p.num_visible(t), size = p.block_size;
  const int64_t blocks = (visible + size - 1) / size, k = p.out.size[1];
  if (blocks <= k) return write_all(blocks, k, p.out.row(t));
  const auto block_key = [&](int64_t b) {
    float highest = -std::numeric_limits<float>::infinity();
    for (int64_t i = b * size; i < (b + 1) * size && i < visible; ++i)
      highest = highest < p.scores(t, i) ? p.scores(t, i) : highest;
    if (b == blocks - 1) highest = std::numeric_limits<float>::infinity();  // the block of the newest visible entry
    return Candidate{true, ordered_key(highest), static_cast<int32_t>(b)};
  };
  select(block_key, blocks, k, p.out.row(t));
}

void top_k_cuda(const ExecutionContext& context, const TopKParams& p) {
  if (p.out.num_elements() == 0) return;
  top_k_kernel<<<num_blocks(p.out.size[0], 1), kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("top_k");
}

void candidate_blocks_cuda(const ExecutionContext& context, const CandidateBlocksParams& p) {
  if (p.out.num_elements() == 0) return;
  candidate_blocks_kernel<<<num_blocks(p.out.size[0], 1), kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("candidate_blocks");
}

}  // namespace

extern const Launch<TopKParams> kTopKCuda = top_k_cuda;
extern const Launch<CandidateBlocksParams> kCandidateBlocksCuda = candidate_blocks_cuda;

}  // namespace deepinfer
