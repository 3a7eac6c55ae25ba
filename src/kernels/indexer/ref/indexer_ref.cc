// SPDX-License-Identifier: MIT
#include <limits>

#include "kernels/indexer/indexer.h"
#include "kernels/lanes/lanes.h"
#include "tensor/float8.h"

namespace deepinfer {
namespace {

void load_key(const uint8_t* row, int64_t head_dim, float* out) {
  for (int64_t i = 0; i < head_dim; ++i)
    out[i] = e2m1_to_float(static_cast<uint8_t>(row[i / 2] >> (i % 2 * 4))) * e8m0_to_float(row[head_dim / 2 + i / 32]);
}

// q: [heads, head_dim] of one token; weight: its head weights.
float score(const float* q, const float* weight, const float* key, int64_t heads, int64_t head_dim,
            ScoreRounding rounding) {
  const bool round = rounding == ScoreRounding::kReference;
  float sum = 0;
  for (int64_t h = 0; h < heads; ++h) {
    float dot = dot_in_lanes(q + h * head_dim, key, head_dim);
    if (round) dot = round_to_bf16(dot);
    const float term = (dot > 0 ? dot : 0.f) * weight[h];
    sum += round ? round_to_bf16(term) : term;
  }
  return round ? round_to_bf16(sum) : sum;
}

}  // namespace

void index_scores_ref(const ExecutionContext& context, const IndexScoresParams& p) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t heads = p.q.size[1], head_dim = p.q.size[2];
  float* q = context.scratch->take<float>(heads * head_dim);
  float* weight = context.scratch->take<float>(heads);
  float* key = context.scratch->take<float>(head_dim);
  for (int64_t t = 0; t < p.q.size[0]; ++t) {
    for (int64_t i = 0; i < heads * head_dim; ++i) q[i] = to_float(p.q.row(t)[i]);
    for (int64_t h = 0; h < heads; ++h) weight[h] = round_to_bf16(to_float(p.weight(t, h)) * p.weight_scale);
    const int64_t num_scores = p.candidates.data ? p.scores.size[1] : p.num_visible(t);
    for (int64_t i = 0; i < num_scores; ++i) {
      int64_t entry = i;
      if (p.candidates.data) {
        const int64_t block = p.candidates(t, i / p.candidate_block_size);
        if (block == kNoEntry) break;
        entry = block * p.candidate_block_size + i % p.candidate_block_size;
        if (entry >= p.num_visible(t)) {
          p.scores(t, i) = -std::numeric_limits<float>::infinity();
          continue;
        }
      }
      load_key(p.keys.row(p.lane(t), entry), head_dim, key);
      p.scores(t, i) = score(q, weight, key, heads, head_dim, p.rounding);
    }
  }
}

}  // namespace deepinfer
