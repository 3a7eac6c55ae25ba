// SPDX-License-Identifier: MIT
// The CPU rows of the index scores. An item is one token and a run of 512 places of its score row.
#include <algorithm>
#include <limits>

#include "kernels/indexer/cpu/indexer_kernels.h"
#include "kernels/indexer/indexer.h"

namespace deepinfer {
namespace {

constexpr int64_t kRun = 512;

struct Run {
  const IndexScoresParams& p;
  const IndexerKernels& kernels;
  const ByteIndexerKernels* byte_kernels;  // null: this token takes the lanes
  const ByteHead* heads;
  const float *q, *weight;  // of the token
  float* keys;              // [4, head_dim]
  int64_t token;
};

// Keys one after the other in memory; `next`: those of the sequence's next cache block, or null.
void score_rows(const Run& run, const uint8_t* rows, int64_t count, const uint8_t* next, float* scores) {
  const IndexScoresParams& p = run.p;
  const bool round_steps = p.rounding == ScoreRounding::kReference;
  const int64_t stride = p.keys.row_stride_bytes, step = run.byte_kernels ? kByteIndexerKeys : count;
  for (int64_t j = 0; j < count; j += step) {
    const int64_t size = std::min(step, count - j);
    const uint8_t* ahead = j + step < count ? rows + (j + step) * stride : next;
    if (run.byte_kernels && run.byte_kernels->score(run.heads, p.q.size[1], rows + j * stride, stride, size, ahead,
                                                    round_steps, scores + j))
      continue;
    run.kernels.score(run.q, run.weight, p.q.size[1], p.q.size[2], rows + j * stride, stride, size, round_steps,
                      run.keys, scores + j);
  }
}

// Entries [begin, end) of the token's sequence into scores[0..): cut where a block of the cache ends.
void score_entries(const Run& run, int64_t begin, int64_t end, float* scores) {
  const IndexScoresParams& p = run.p;
  for (int64_t entry = begin; entry < end;) {
    const int64_t stop = std::min<int64_t>(end, (entry / p.keys.rows_per_block + 1) * p.keys.rows_per_block);
    const int32_t lane = p.lane(run.token);
    const uint8_t* next = stop < p.num_visible(run.token) ? p.keys.row(lane, stop) : nullptr;
    score_rows(run, p.keys.row(lane, entry), stop - entry, next, scores + (entry - begin));
    entry = stop;
  }
}

// Candidate blocks [begin, end) of the token's list.
void score_candidates(const Run& run, int64_t begin, int64_t end) {
  const IndexScoresParams& p = run.p;
  for (int64_t b = begin; b < end && p.candidates(run.token, b) != kNoEntry; ++b) {
    const int64_t first = int64_t{p.candidates(run.token, b)} * p.candidate_block_size,
                  last = first + p.candidate_block_size;
    const int64_t visible = std::clamp<int64_t>(p.num_visible(run.token), first, last);
    float* scores = p.scores.row(run.token) + b * p.candidate_block_size;
    score_entries(run, first, visible, scores);
    std::fill(scores + (visible - first), scores + p.candidate_block_size, -std::numeric_limits<float>::infinity());
  }
}

void index_scores(const ExecutionContext& context, const IndexScoresParams& p, const IndexerKernels& kernels,
                  const ByteIndexerKernels* byte_kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t tokens = p.q.size[0], heads = p.q.size[1], head_dim = p.q.size[2];
  float* q = context.scratch->take<float>(tokens * heads * head_dim);
  float* weight = context.scratch->take<float>(tokens * heads);
  float* keys = context.scratch->take<float>(context.num_threads() * 4 * head_dim);
  ByteHead* byte_heads = context.scratch->take<ByteHead>(byte_kernels ? tokens * heads : 0);
  bool* in_bytes = context.scratch->take<bool>(tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < heads * head_dim; ++i) q[t * heads * head_dim + i] = to_float(p.q.row(t)[i]);
    for (int64_t h = 0; h < heads; ++h)
      weight[t * heads + h] = round_to_bf16(to_float(p.weight(t, h)) * p.weight_scale);
    in_bytes[t] = byte_kernels && byte_kernels->prepare(q + t * heads * head_dim, weight + t * heads, heads, head_dim,
                                                        byte_heads + t * heads);
  }
  const int64_t blocks_per_run = p.candidates.data ? std::max<int64_t>(1, kRun / p.candidate_block_size) : 0;
  int64_t most = 0;
  for (int64_t t = 0; t < tokens; ++t) most = std::max<int64_t>(most, p.num_visible(t));
  const int64_t runs = p.candidates.data ? ceil_div(p.candidates.size[1], blocks_per_run) : ceil_div(most, kRun);
  for_each_item(
      context, tokens * runs, static_cast<double>(tokens * most * heads * head_dim), [&](int64_t item, int worker) {
        const int64_t t = item / runs, i = item % runs;
        const Run run{p,
                      kernels,
                      in_bytes[t] ? byte_kernels : nullptr,
                      byte_heads + t * heads,
                      q + t * heads * head_dim,
                      weight + t * heads,
                      keys + worker * 4 * head_dim,
                      t};
        if (p.candidates.data)
          score_candidates(run, i * blocks_per_run, std::min((i + 1) * blocks_per_run, p.candidates.size[1]));
        else
          score_entries(run, i * kRun, std::min<int64_t>((i + 1) * kRun, p.num_visible(t)), p.scores.row(t) + i * kRun);
      });
}

}  // namespace

void index_scores_avx2(const ExecutionContext& context, const IndexScoresParams& p) {
  index_scores(context, p, indexer_kernels_avx2(), nullptr);
}
void index_scores_avx512(const ExecutionContext& context, const IndexScoresParams& p) {
  index_scores(context, p, indexer_kernels_avx512(), nullptr);
}
void index_scores_vnni(const ExecutionContext& context, const IndexScoresParams& p) {
  index_scores(context, p, indexer_kernels_avx512(), &byte_indexer_kernels_vnni());
}

}  // namespace deepinfer
