// SPDX-License-Identifier: MIT
#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/top_k/selection_key.h"
#include "kernels/top_k/top_k.h"

namespace deepinfer {
namespace {

// The indices of the k highest keys, ascending, then kNoEntry.
void write_best(uint64_t* keys, int64_t num_keys, int64_t k, int32_t* out) {
  const int64_t kept = std::min(num_keys, k);
  if (kept < num_keys) std::nth_element(keys, keys + kept, keys + num_keys, std::greater<>());
  for (int64_t i = 0; i < kept; ++i) out[i] = static_cast<int32_t>(index_of_key(keys[i]));
  std::sort(out, out + kept);
  std::fill(out + kept, out + k, kNoEntry);
}

void write_all(int64_t count, int64_t k, int32_t* out) {
  for (int64_t i = 0; i < k; ++i) out[i] = i < count ? static_cast<int32_t>(i) : kNoEntry;
}

// Keys of the visible entries of the listed blocks.
int64_t gather_candidates(const TopKParams& p, int64_t t, uint64_t* keys) {
  int64_t count = 0;
  for (int64_t b = 0; b < p.candidates.size[1] && p.candidates(t, b) != kNoEntry; ++b) {
    const int64_t first = int64_t{p.candidates(t, b)} * p.candidate_block_size;
    for (int i = 0; i < p.candidate_block_size && first + i < p.num_visible(t); ++i)
      keys[count++] = selection_key(p.scores.data ? p.scores(t, b * p.candidate_block_size + i) : 0.f,
                                    static_cast<uint32_t>(first + i));
  }
  return count;
}

}  // namespace

void top_k_ref(const ExecutionContext& context, const TopKParams& p) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t k = p.out.size[1];
  int64_t most = p.candidates.data ? p.candidates.size[1] * p.candidate_block_size : 0;
  for (int64_t t = 0; t < p.out.size[0] && !p.candidates.data; ++t) most = std::max<int64_t>(most, p.num_visible(t));
  uint64_t* keys = context.scratch->take<uint64_t>(most);
  for (int64_t t = 0; t < p.out.size[0]; ++t) {
    int64_t count = p.num_visible(t);
    if (count <= k && !p.candidates.data) {
      write_all(count, k, p.out.row(t));
      continue;
    }
    if (p.candidates.data) count = gather_candidates(p, t, keys);
    else
      for (int64_t i = 0; i < count; ++i) keys[i] = selection_key(p.scores(t, i), static_cast<uint32_t>(i));
    write_best(keys, count, k, p.out.row(t));
  }
}

void candidate_blocks_ref(const ExecutionContext& context, const CandidateBlocksParams& p) {
  const Scratch::Frame frame(*context.scratch);
  int64_t most = 0;
  for (int64_t t = 0; t < p.out.size[0]; ++t) most = std::max<int64_t>(most, p.num_visible(t));
  uint64_t* keys = context.scratch->take<uint64_t>(ceil_div<int64_t>(most, p.block_size));
  for (int64_t t = 0; t < p.out.size[0]; ++t) {
    const int64_t visible = p.num_visible(t), blocks = ceil_div<int64_t>(visible, p.block_size);
    if (blocks <= p.out.size[1]) {
      write_all(blocks, p.out.size[1], p.out.row(t));
      continue;
    }
    for (int64_t b = 0; b < blocks; ++b) {
      float highest = -std::numeric_limits<float>::infinity();
      for (int64_t i = b * p.block_size; i < std::min<int64_t>((b + 1) * p.block_size, visible); ++i)
        highest = std::max(highest, p.scores(t, i));
      if (b == blocks - 1) highest = std::numeric_limits<float>::infinity();  // the block of the newest visible entry
      keys[b] = selection_key(highest, static_cast<uint32_t>(b));
    }
    write_best(keys, blocks, p.out.size[1], p.out.row(t));
  }
}

}  // namespace deepinfer
