// SPDX-License-Identifier: MIT
#include "scheduler/verify_budget.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "scheduler/batch.h"

namespace deepinfer {
namespace {
constexpr float kSurvivalMin = 1e-6f;
constexpr float kLogitMax = 60.0f;  // beyond it the sigmoid is 0 or 1 in fp32

std::span<const float> sorted_descending(const SurvivalTable& survivals, VerifyScratch& scratch) {
  scratch.sorted.assign(survivals.all().begin(), survivals.all().end());
  std::sort(scratch.sorted.begin(), scratch.sorted.end(), std::greater<>());
  return scratch.sorted;
}

// With step_ns(K) = base + K x row the best set is { a > rate x row } at the best rate: expected tokens are concave in
// K. Dinkelbach's iteration raises the rate until it stands; a handful of passes over the drafts, no sort.
int64_t linear_budget(std::span<const float> all, double num_sampling, const VerifyCost& cost) {
  double rate = num_sampling / cost.base_ns;
  for (int64_t best = 0;;) {
    const float threshold = static_cast<float>(rate * cost.row_ns);
    double tokens = num_sampling;
    int64_t k = 0;
    for (const float a : all) {
      tokens += a > threshold ? static_cast<double>(a) : 0.0;
      k += a > threshold;
    }
    const double next = tokens / (cost.base_ns + static_cast<double>(k) * cost.row_ns);
    if (next <= rate) return best;
    rate = next;
    best = k;
  }
}
}  // namespace

void SurvivalTable::clear() {
  values_.clear();
  ends_.clear();
  num_foretold_ = 0;
}

void SurvivalTable::add_logits(std::span<const float> logits, std::span<const float> temperatures,
                               int64_t num_drafts_max) {
  float survival = 1.0f;
  for (size_t j = 0; j < logits.size() && static_cast<int64_t>(j) < num_drafts_max; ++j) {
    const float temperature = j < temperatures.size() ? temperatures[j] : 1.0f;
    survival *= 1.0f / (1.0f + std::exp(-std::clamp(logits[j] / temperature, -kLogitMax, kLogitMax)));
    if (!(survival > kSurvivalMin)) break;
    num_foretold_ += logits[j] == kForetoldConfidence;
    values_.push_back(survival);
  }
  ends_.push_back(static_cast<int32_t>(values_.size()));
}

void SurvivalTable::add(std::span<const float> survivals) {
  values_.insert(values_.end(), survivals.begin(), survivals.end());
  ends_.push_back(static_cast<int32_t>(values_.size()));
}

void SurvivalTable::add_certain(int64_t num_drafts) {
  values_.insert(values_.end(), static_cast<size_t>(std::max<int64_t>(num_drafts, 0)), 1.0f);
  ends_.push_back(static_cast<int32_t>(values_.size()));
}

void SurvivalTable::add_foretold(int64_t num_drafts) {
  add_certain(num_drafts);
  num_foretold_ += std::max<int64_t>(num_drafts, 0);
}

std::span<const float> SurvivalTable::request(int64_t i) const {
  const int32_t begin = i == 0 ? 0 : ends_[static_cast<size_t>(i - 1)];
  return std::span(values_).subspan(static_cast<size_t>(begin),
                                    static_cast<size_t>(ends_[static_cast<size_t>(i)] - begin));
}

int64_t verify_budget(const SurvivalTable& survivals, double num_sampling, const VerifyCost& cost,
                      VerifyScratch& scratch) {
  if (cost.table.empty()) return linear_budget(survivals.all(), num_sampling, cost);
  const std::span<const float> all = sorted_descending(survivals, scratch);
  double tokens = num_sampling, best_rate = tokens / cost.step_ns(0);
  size_t best = 0;
  for (size_t k = 1; k <= std::min(all.size(), cost.num_drafts_max()); ++k) {
    tokens += static_cast<double>(all[k - 1]);
    if (tokens / cost.step_ns(k) > best_rate) {
      best_rate = tokens / cost.step_ns(k);
      best = k;
    }
  }
  return static_cast<int64_t>(best);
}

int64_t verify_budget_early_stop(const SurvivalTable& survivals, double num_sampling, const VerifyCost& cost,
                                 VerifyScratch& scratch) {
  const std::span<const float> all = sorted_descending(survivals, scratch);
  double tokens = num_sampling, rate = tokens / cost.step_ns(0);
  size_t k = 0;
  while (k < std::min(all.size(), cost.num_drafts_max())) {
    tokens += static_cast<double>(all[k]);
    if (tokens / cost.step_ns(k + 1) <= rate) break;
    rate = tokens / cost.step_ns(++k);
  }
  return static_cast<int64_t>(k);
}

void split_verify_budget(const SurvivalTable& survivals, int64_t budget, VerifyScratch& scratch,
                         std::vector<int32_t>& counts) {
  auto& candidates = scratch.candidates;
  candidates.clear();
  for (int64_t r = 0; r < survivals.num_requests(); ++r) {
    int32_t draft = 0;
    for (const float survival : survivals.request(r))
      candidates.push_back({survival, draft++, static_cast<int32_t>(r)});
  }
  const size_t num_taken = std::min(candidates.size(), static_cast<size_t>(std::max<int64_t>(budget, 0)));
  const auto before = [](const VerifyScratch::Candidate& x, const VerifyScratch::Candidate& y) {
    if (x.survival != y.survival) return x.survival > y.survival;
    return x.draft != y.draft ? x.draft < y.draft : x.request < y.request;
  };
  // The order is total, so which ones are taken does not depend on the algorithm.
  if (num_taken < candidates.size())
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<int64_t>(num_taken), candidates.end(),
                     before);
  counts.assign(static_cast<size_t>(survivals.num_requests()), 0);
  for (size_t i = 0; i < num_taken; ++i) ++counts[static_cast<size_t>(candidates[i].request)];
}

}  // namespace deepinfer
