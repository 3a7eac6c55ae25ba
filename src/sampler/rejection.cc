// SPDX-License-Identifier: MIT
#include "sampler/rejection.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr double kEmptyResidual = 1e-8;

double uniform_at(NoiseKey key, size_t offset, NoisePurpose purpose) {
  key.output_position += static_cast<uint32_t>(offset);
  key.purpose = purpose;
  return double{uniform(key)};
}

}  // namespace

double accept_probability(const Law& target, const Law& draft, TokenId drafted) {
  const size_t d = static_cast<size_t>(drafted);
  CHECK(draft[d] > 0);
  return std::min(1.0, target[d] / draft[d]);
}

Law residual_law(const Law& target, const Law& draft) {
  Law rest;
  double sum = 0;
  for (size_t v = 0; v < target.size(); ++v) {
    rest.push_back(std::max(target[v] - draft[v], 0.0));
    sum += rest.back();
  }
  if (sum < kEmptyResidual) return target;
  for (double& r : rest) r /= sum;
  return rest;
}

TokenId draw(const Law& law, double u) {
  double running = 0;
  TokenId last = 0;
  for (size_t v = 0; v < law.size(); ++v) {
    if (law[v] <= 0) continue;
    last = static_cast<TokenId>(v);
    running += law[v];
    if (u < running) return last;
  }
  return last;
}

Verified verify_by_rejection(std::span<const TokenId> drafts, std::span<const Law> draft_laws,
                             std::span<const Law> target_laws, NoiseKey key) {
  CHECK(draft_laws.size() == drafts.size() && target_laws.size() == drafts.size() + 1);
  for (size_t j = 0; j < drafts.size(); ++j) {
    if (uniform_at(key, j, NoisePurpose::kAccept) < accept_probability(target_laws[j], draft_laws[j], drafts[j]))
      continue;
    const Law rest = residual_law(target_laws[j], draft_laws[j]);
    return {static_cast<int64_t>(j), draw(rest, uniform_at(key, j, NoisePurpose::kResidual))};
  }
  return {static_cast<int64_t>(drafts.size()),
          draw(target_laws.back(), uniform_at(key, drafts.size(), NoisePurpose::kTarget))};
}

}  // namespace deepinfer
