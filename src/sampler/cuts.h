// SPDX-License-Identifier: MIT
// top-k, then top-p over what top-k left, then min-p: which tokens may be picked. Order of tokens: logit descending, id
// ascending; sums run in that order in double. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sampler/sampling_params.h"

namespace deepinfer {

struct Candidate {
  float logit = 0;
  TokenId id = 0;
  bool operator==(const Candidate&) const = default;
};

inline bool is_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

inline bool has_cuts(const SamplingParams& p) { return p.top_k > 0 || p.top_p < 1 || p.min_p > 0; }

// The tokens that stand, in order; at least one. logits: -infinity = masked; max: the largest, finite. `out` is reused
// without allocating once its capacity has reached the vocabulary.
void cut(const SamplingParams& params, std::span<const float> logits, float max, std::vector<Candidate>& out);

// The `count` first tokens in order (fewer if fewer are not masked).
void first_candidates(std::span<const float> logits, int64_t count, std::vector<Candidate>& out);

}  // namespace deepinfer
