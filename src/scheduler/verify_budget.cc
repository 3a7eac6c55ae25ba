// SPDX-License-Identifier: MIT
#include "scheduler/verify_budget.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr float kSurvivalMin = 1e-6f;
constexpr float kLogitMax = 60.0f;  // beyond it the sigmoid is 0 or 1 in fp32

std::vector<float> sorted_descending(std::span<const std::vector<float>> survivals) {
  std::vector<float> all;
  for (const auto& one : survivals) all.insert(all.end(), one.begin(), one.end());
  std::sort(all.begin(), all.end(), std::greater<>());
  return all;
}

}  // namespace

std::vector<float> survivals(std::span<const float> confidence_logits, std::span<const float> temperatures) {
  std::vector<float> out;
  float survival = 1.0f;
  for (size_t j = 0; j < confidence_logits.size(); ++j) {
    const float temperature = j < temperatures.size() ? temperatures[j] : 1.0f;
    survival *= 1.0f / (1.0f + std::exp(-std::clamp(confidence_logits[j] / temperature, -kLogitMax, kLogitMax)));
    if (!(survival > kSurvivalMin)) break;
    out.push_back(survival);
  }
  return out;
}

int64_t verify_budget(std::span<const std::vector<float>> survivals, double num_sampling,
                      std::span<const double> step_ns) {
  CHECK(!step_ns.empty());
  const std::vector<float> all = sorted_descending(survivals);
  double tokens = num_sampling, best_rate = tokens / step_ns[0];
  int64_t best = 0;
  for (size_t k = 1; k <= all.size() && k < step_ns.size(); ++k) {
    tokens += static_cast<double>(all[k - 1]);
    if (tokens / step_ns[k] > best_rate) {
      best_rate = tokens / step_ns[k];
      best = static_cast<int64_t>(k);
    }
  }
  return best;
}

int64_t verify_budget_early_stop(std::span<const std::vector<float>> survivals, double num_sampling,
                                 std::span<const double> step_ns) {
  CHECK(!step_ns.empty());
  const std::vector<float> all = sorted_descending(survivals);
  double tokens = num_sampling, rate = tokens / step_ns[0];
  size_t k = 0;
  while (k < all.size() && k + 1 < step_ns.size()) {
    tokens += static_cast<double>(all[k]);
    if (tokens / step_ns[k + 1] <= rate) break;
    rate = tokens / step_ns[++k];
  }
  return static_cast<int64_t>(k);
}

std::vector<int32_t> split_verify_budget(std::span<const std::vector<float>> survivals, int64_t budget) {
  struct Candidate {
    float survival;
    int32_t draft, request;
  };
  std::vector<Candidate> candidates;
  for (size_t r = 0; r < survivals.size(); ++r)
    for (size_t j = 0; j < survivals[r].size(); ++j)
      candidates.push_back({survivals[r][j], static_cast<int32_t>(j), static_cast<int32_t>(r)});
  const size_t num_taken = std::min(candidates.size(), static_cast<size_t>(std::max<int64_t>(budget, 0)));
  const auto before = [](const Candidate& x, const Candidate& y) {
    if (x.survival != y.survival) return x.survival > y.survival;
    return x.draft != y.draft ? x.draft < y.draft : x.request < y.request;
  };
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<int64_t>(num_taken), candidates.end(), before);
  std::vector<int32_t> counts(survivals.size(), 0);
  for (size_t i = 0; i < num_taken; ++i) ++counts[static_cast<size_t>(candidates[i].request)];
  return counts;
}

}  // namespace deepinfer
