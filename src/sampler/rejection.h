// SPDX-License-Identifier: MIT
// The classical speculative sampler, for comparison with shared noise in tests and benches; the engine does not use it
// (decision 6). Exact for any draft law (dspark-vision.md 1.6). Laws are rows of probabilities in double. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sampler/noise.h"

namespace deepinfer {

using Law = std::vector<double>;  // [vocab], sums to 1

// min(1, p/q) of the drafted token.
double accept_probability(const Law& target, const Law& draft, TokenId drafted);

// max(target - draft, 0), normalised; the target itself where that is empty but for rounding.
Law residual_law(const Law& target, const Law& draft);

// One token by inverse of the running sum; u in (0, 1).
TokenId draw(const Law& law, double u);

struct Verified {
  int64_t num_accepted = 0;
  TokenId next = 0;  // the token after the accepted drafts
};

// drafts[j] was drawn from draft_laws[j]; target_laws has one row more. Uniforms are keyed by the position each decides
// (key.output_position + j) and the purposes kAccept, kResidual and kTarget.
Verified verify_by_rejection(std::span<const TokenId> drafts, std::span<const Law> draft_laws,
                             std::span<const Law> target_laws, NoiseKey key);

}  // namespace deepinfer
