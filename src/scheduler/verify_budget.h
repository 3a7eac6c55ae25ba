// SPDX-License-Identifier: MIT
// Confidence-scheduled verification of DSpark drafts (dspark-vision.md 2).
// survival a_j of a request's j-th draft = product of the calibrated confidences up to j: non-increasing in j.
// Verifying the K most likely drafts of the whole batch is then a prefix of each request's drafts. The budget K
// maximises expected tokens per second, tokens(K) / step_ns[K]; it is computed from an EARLIER step's confidences,
// because a budget that looks at live ones biases sampling (2.6). The split of K uses live confidences, which depends
// on no token that it admits. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

// Survivals of the drafts of many requests, one after another in one array that keeps its memory from step to step.
class SurvivalTable {
 public:
  void clear();
  // One request more, from raw confidence logits and calibration temperatures (one per draft position; missing = 1), at
  // most `num_drafts_max` of them. A draft with kForetoldConfidence stands as often as `foretold_rate` says. Drafts
  // with survival below 1e-6 are left out.
  void add_logits(std::span<const float> logits, std::span<const float> temperatures, int64_t num_drafts_max,
                  float foretold_rate);
  void add(std::span<const float> survivals);
  void add_certain(int64_t num_drafts);  // a request of which nothing is known yet: all its drafts count as accepted
  void add_foretold(int64_t num_drafts, float foretold_rate);  // all of them with kForetoldConfidence
  int64_t num_requests() const { return static_cast<int64_t>(ends_.size()); }
  int64_t num_drafts() const { return static_cast<int64_t>(values_.size()); }
  std::span<const float> request(int64_t i) const;
  std::span<const float> all() const { return values_; }

 private:
  std::vector<float> values_;
  std::vector<int32_t> ends_;
};

// Time of a step over the number of verified drafts K: step_ns(K) = base_ns + K x row_ns, or any table of it.
struct VerifyCost {
  double base_ns = 1, row_ns = 0;
  std::span<const double> table = {};  // when not empty: step_ns(K) = table[K], and K stays below its size
  double step_ns(size_t k) const { return table.empty() ? base_ns + static_cast<double>(k) * row_ns : table[k]; }
  size_t num_drafts_max() const { return table.empty() ? SIZE_MAX : table.size() - 1; }
};

// Scratch memory of the functions below; reused so that a steady state allocates nothing.
struct VerifyScratch {
  std::vector<float> sorted;
};

// Production rule: K that maximises (num_sampling + sum of the K largest survivals) / step_ns(K); the first maximum
// wins.
int64_t verify_budget(const SurvivalTable& survivals, double num_sampling, const VerifyCost& cost,
                      VerifyScratch& scratch);

// Single-request rule: stop at the first draft that does not raise the rate.
int64_t verify_budget_early_stop(const SurvivalTable& survivals, double num_sampling, const VerifyCost& cost,
                                 VerifyScratch& scratch);

// How many drafts of each request are verified when `budget` are in all: the largest survivals, ties by draft position,
// then by request order (never by token values).
void split_verify_budget(const SurvivalTable& survivals, int64_t budget, VerifyScratch& scratch,
                         std::vector<int32_t>& counts);

}  // namespace deepinfer
