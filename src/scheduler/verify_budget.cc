// SPDX-License-Identifier: MIT
#include "scheduler/verify_budget.h"

#include <algorithm>
#include <array>
#include <bit>
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

// Of positive numbers; k from 1 on. Their bits order as they do: the upper ones sort them into buckets, and only that
// of the k-th is looked at closely.
float kth_largest(std::span<const float> values, size_t k, VerifyScratch& scratch) {
  constexpr int kShift = 20;  // three bits of the mantissa stay
  std::array<uint32_t, (1u << (31 - kShift))> num_in{};
  const auto bucket_of = [](float x) { return std::bit_cast<uint32_t>(x) >> kShift; };
  for (const float x : values) ++num_in[bucket_of(x)];
  size_t bucket = num_in.size() - 1;
  while (k > num_in[bucket]) k -= num_in[bucket--];
  scratch.sorted.clear();
  for (const float x : values)
    if (bucket_of(x) == bucket) scratch.sorted.push_back(x);
  const auto at = scratch.sorted.begin() + static_cast<int64_t>(k - 1);
  std::nth_element(scratch.sorted.begin(), at, scratch.sorted.end(), std::greater<>());
  return *at;
}

struct Drafts {
  double survivals = 0;  // sum
  int64_t num = 0;
};
// Four sums side by side: one would wait for itself at every draft.
Drafts above(std::span<const float> all, float threshold) {
  Drafts sums[4];
  const auto add = [threshold](Drafts& sum, float a) {
    sum.survivals += a > threshold ? static_cast<double>(a) : 0.0;
    sum.num += a > threshold;
  };
  size_t i = 0;
  for (; i + 4 <= all.size(); i += 4)
    for (size_t lane = 0; lane < 4; ++lane) add(sums[lane], all[i + lane]);
  for (; i < all.size(); ++i) add(sums[0], all[i]);
  return {(sums[0].survivals + sums[1].survivals) + (sums[2].survivals + sums[3].survivals),
          sums[0].num + sums[1].num + sums[2].num + sums[3].num};
}

// With step_ns(K) = base + K x row the best set is { a > rate x row } at the best rate: expected tokens are concave in
// K. Dinkelbach's iteration raises the rate until it stands; a handful of passes over the drafts, no sort.
int64_t linear_budget(std::span<const float> all, double num_sampling, const VerifyCost& cost) {
  double rate = num_sampling / cost.base_ns;
  for (int64_t best = 0;;) {
    const Drafts worth = above(all, static_cast<float>(rate * cost.row_ns));
    const double next =
        (num_sampling + worth.survivals) / (cost.base_ns + static_cast<double>(worth.num) * cost.row_ns);
    if (next <= rate) return best;
    rate = next;
    best = worth.num;
  }
}
}  // namespace

void SurvivalTable::clear() {
  values_.clear();
  ends_.clear();
}

void SurvivalTable::add_logits(std::span<const float> logits, std::span<const float> temperatures,
                               int64_t num_drafts_max, float foretold_rate) {
  float survival = 1.0f;
  for (size_t j = 0; j < logits.size() && static_cast<int64_t>(j) < num_drafts_max; ++j) {
    const float temperature = j < temperatures.size() ? temperatures[j] : 1.0f;
    survival *= logits[j] == kForetoldConfidence
                    ? foretold_rate
                    : 1.0f / (1.0f + std::exp(-std::clamp(logits[j] / temperature, -kLogitMax, kLogitMax)));
    if (!(survival > kSurvivalMin)) break;
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

void SurvivalTable::add_foretold(int64_t num_drafts, float foretold_rate) {
  float survival = foretold_rate;
  for (int64_t j = 0; j < num_drafts && survival > kSurvivalMin; ++j, survival *= foretold_rate)
    values_.push_back(survival);
  ends_.push_back(static_cast<int32_t>(values_.size()));
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

// Likelier drafts first, so which ones are taken depends on no algorithm: those above the survival of the last one
// taken, and of those that equal it the first in order.
void split_verify_budget(const SurvivalTable& survivals, int64_t budget, VerifyScratch& scratch,
                         std::vector<int32_t>& counts) {
  const std::span<const float> all = survivals.all();
  const int64_t num_requests = survivals.num_requests();
  counts.assign(static_cast<size_t>(num_requests), 0);
  int64_t num_left = std::min(static_cast<int64_t>(all.size()), budget);
  if (num_left <= 0) return;
  const bool takes_all = num_left == static_cast<int64_t>(all.size());
  const float last = takes_all ? 0.0f : kth_largest(all, static_cast<size_t>(num_left), scratch);
  for (int64_t r = 0; r < num_requests; ++r) {
    int32_t& count = counts[static_cast<size_t>(r)];
    for (const float survival : survivals.request(r)) count += survival > last;
    num_left -= count;
  }
  for (int32_t draft = 0; num_left > 0; ++draft)
    for (int64_t r = 0; r < num_requests && num_left > 0; ++r) {
      const std::span<const float> request = survivals.request(r);
      int32_t& count = counts[static_cast<size_t>(r)];
      if (count != draft || request.size() <= static_cast<size_t>(draft)) continue;
      if (request[static_cast<size_t>(draft)] != last) continue;
      ++count;
      --num_left;
    }
}

}  // namespace deepinfer
