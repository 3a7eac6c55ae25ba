// SPDX-License-Identifier: MIT
// The CPU rows of the selections. A sample of the scores gives a threshold that somewhat more than k of them are
// expected to reach; one pass collects those that do, and the exact selection is made among these alone. If they are
// fewer than k the threshold is lowered to nothing: the result is exact in any case and the sample is the same in every
// run.
#include <algorithm>
#include <functional>
#include <limits>

#include "base/range.h"
#include "kernels/top_k/cpu/collect.h"
#include "kernels/top_k/selection_key.h"
#include "kernels/top_k/top_k.h"

namespace deepinfer {
namespace {

constexpr int64_t kSample = 4096, kWorthSampling = 4 * kSample;

struct Workspace {  // of one worker, for at most `most` scores
  float* sample;    // [kSample]
  uint32_t* index;  // [most + 16]
  uint64_t* keys;   // [most]
  float* gathered;  // [most]
};

struct Pieces {
  explicit Pieces(int64_t most) : most_(round_up<int64_t>(most + 16, 16)) {}
  int64_t bytes() const { return 4 * kSample + (4 + 8 + 4) * most_; }
  Workspace carve(uint8_t* memory) const {
    uint8_t *keys = memory, *gathered = keys + 8 * most_, *index = gathered + 4 * most_, *sample = index + 4 * most_;
    return {reinterpret_cast<float*>(sample), reinterpret_cast<uint32_t*>(index), reinterpret_cast<uint64_t*>(keys),
            reinterpret_cast<float*>(gathered)};
  }

 private:
  int64_t most_;
};

// A score that about 1.5 k + 64 of them reach; NaN where a sample could not tell.
float threshold_for(const float* scores, int64_t size, int64_t k, float* sample) {
  if (size < kWorthSampling) return std::numeric_limits<float>::quiet_NaN();
  const int64_t step = size / kSample, rank = (3 * k / 2 + 64) * kSample / size + 8;
  if (rank >= kSample) return std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < kSample; ++i) {
    const float score = scores[i * step];
    sample[i] = score == score ? score : -std::numeric_limits<float>::infinity();
  }
  std::nth_element(sample, sample + rank, sample + kSample, std::greater<>());
  return sample[rank];
}

// The keys of the scores that reach the threshold, the k best of them first. False: some of the k best of all are
// missing (a NaN is always among the collected, wherever its key stands).
bool select_from(const CollectKernels& kernels, const float* scores, int64_t size, int64_t k, float threshold,
                 const Workspace& work) {
  const int64_t count = kernels.collect(scores, size, threshold, 0, work.index);
  if (count < k) return false;
  for (int64_t i = 0; i < count; ++i) work.keys[i] = selection_key(scores[work.index[i]], work.index[i]);
  if (k < count) std::nth_element(work.keys, work.keys + k - 1, work.keys + count, std::greater<>());
  const bool all = threshold != threshold || count == size;
  return all || *std::min_element(work.keys, work.keys + k) >= selection_key(threshold, 0xFFFFFFFFu);
}

// Indices of the k best of `size` scores, ascending. Precondition: k < size.
void select(const CollectKernels& kernels, const float* scores, int64_t size, int64_t k, const Workspace& work,
            int32_t* out) {
  if (k == 0) return;
  if (!select_from(kernels, scores, size, k, threshold_for(scores, size, k, work.sample), work))
    select_from(kernels, scores, size, k, std::numeric_limits<float>::quiet_NaN(), work);
  for (int64_t i = 0; i < k; ++i) out[i] = static_cast<int32_t>(index_of_key(work.keys[i]));
  std::sort(out, out + k);
}

void write_all(int64_t count, int64_t k, int32_t* out) {
  for (int64_t i = 0; i < k; ++i) out[i] = i < count ? static_cast<int32_t>(i) : kNoEntry;
}

// The scores of visible entries of listed blocks, one after the other: the blocks before the last are whole.
int64_t num_listed(const TopKParams& p, int64_t t) {
  int64_t blocks = 0;
  while (blocks < p.candidates.size[1] && p.candidates(t, blocks) != kNoEntry) ++blocks;
  return blocks;
}

void select_among_candidates(const TopKParams& p, int64_t t, const CollectKernels& kernels, const Workspace& work) {
  const int64_t k = p.out.size[1], block = p.candidate_block_size, blocks = num_listed(p, t);
  int32_t* out = p.out.row(t);
  int64_t count = 0;
  for (int64_t b = 0; b < blocks; ++b)
    count += std::clamp<int64_t>(p.num_visible(t) - int64_t{p.candidates(t, b)} * block, 0, block);
  if (count >
      k) {  // blocks ascend, so places are in the order of their entries and beyond the visible there is nothing
    select(kernels, p.scores.row(t), count, k, work, out);
  } else {
    write_all(count, k, out);
  }
  for (int64_t i = 0; i < std::min(count, k); ++i)
    out[i] = static_cast<int32_t>(int64_t{p.candidates(t, out[i] / block)} * block + out[i] % block);
}

void top_k(const ExecutionContext& context, const TopKParams& p, const CollectKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t tokens = p.out.size[0], k = p.out.size[1];
  int64_t most = 0;
  for (int64_t t = 0; t < tokens; ++t) most = std::max<int64_t>(most, p.num_visible(t));
  const Pieces pieces(most > k ? most : 0);
  uint8_t* memory = context.scratch->take<uint8_t>(context.num_threads() * pieces.bytes());
  for_each_item(context, tokens, static_cast<double>(tokens * most), [&](int64_t t, int worker) {
    const Workspace work = pieces.carve(memory + worker * pieces.bytes());
    if (p.candidates.data) select_among_candidates(p, t, kernels, work);
    else if (p.num_visible(t) <= k) write_all(p.num_visible(t), k, p.out.row(t));
    else select(kernels, p.scores.row(t), p.num_visible(t), k, work, p.out.row(t));
  });
}

void candidate_blocks(const ExecutionContext& context, const CandidateBlocksParams& p, const CollectKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t tokens = p.out.size[0], k = p.out.size[1], size = p.block_size;
  int64_t most = 0;
  for (int64_t t = 0; t < tokens; ++t) most = std::max<int64_t>(most, ceil_div<int64_t>(p.num_visible(t), size));
  const Pieces pieces(most > k ? most : 0);
  uint8_t* memory = context.scratch->take<uint8_t>(context.num_threads() * pieces.bytes());
  for_each_item(context, tokens, static_cast<double>(tokens * most * size), [&](int64_t t, int worker) {
    const Workspace work = pieces.carve(memory + worker * pieces.bytes());
    const int64_t visible = p.num_visible(t), blocks = ceil_div<int64_t>(visible, size);
    if (blocks <= k) return write_all(blocks, k, p.out.row(t));
    const float* scores = p.scores.row(t);
    if (size == 8) kernels.highest_of_8(scores, visible / 8 * 8, work.gathered);
    for (int64_t b = size == 8 ? visible / 8 : 0; b < blocks; ++b) {
      float highest = -std::numeric_limits<float>::infinity();
      for (int64_t i = b * size; i < std::min((b + 1) * size, visible); ++i) highest = std::max(highest, scores[i]);
      work.gathered[b] = highest;
    }
    work.gathered[blocks - 1] = std::numeric_limits<float>::infinity();  // the block of the newest visible entry
    select(kernels, work.gathered, blocks, k, work, p.out.row(t));
  });
}

}  // namespace

void top_k_avx2(const ExecutionContext& c, const TopKParams& p) { top_k(c, p, collect_kernels_avx2()); }
void top_k_avx512(const ExecutionContext& c, const TopKParams& p) { top_k(c, p, collect_kernels_avx512()); }
void candidate_blocks_avx2(const ExecutionContext& c, const CandidateBlocksParams& p) {
  candidate_blocks(c, p, collect_kernels_avx2());
}
void candidate_blocks_avx512(const ExecutionContext& c, const CandidateBlocksParams& p) {
  candidate_blocks(c, p, collect_kernels_avx512());
}

}  // namespace deepinfer
