// SPDX-License-Identifier: MIT
#include "sampler/cuts.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "kernels/lanes/exponential.h"
#include "sampler/noise.h"
#include "sampler/row_scan.h"

namespace deepinfer {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr int64_t kHeapMax = 1024;  // beyond it, selecting once over all tokens is cheaper than a heap

float weight_of(float logit, float max, float temperature) { return exp_in_lanes((logit - max) / temperature); }

void collect(std::span<const float> logits, float least, std::vector<Candidate>& out) {
  out.clear();
  for_each_at_least(logits, least, [&](size_t i) {
    if (logits[i] != kMasked) out.push_back({logits[i], static_cast<TokenId>(i)});
  });
}

// Keeps candidates up to and including the one whose weight brings the running sum to `share` of `total`.
void keep_share(float max, float temperature, double share_of_total, std::vector<Candidate>& sorted) {
  double running = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    running += double{weight_of(sorted[i].logit, max, temperature)};
    if (running < share_of_total) continue;
    sorted.resize(i + 1);
    return;
  }
}

// A little below log(min_p): no token under it can pass min-p.
float least_exponent(float min_p) { return min_p < 1e-30f ? kMasked : noise_log(min_p) - 1e-3f; }

double weight_sum(const std::vector<Candidate>& candidates, float max, float temperature) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += double{weight_of(c.logit, max, temperature)};
  return sum;
}

// How far below the largest logit (in exponents) the `wanted` weight is certainly reached; infinity if the bins do not
// tell.
float find_band(std::span<const float> logits, float max, float temperature, double wanted) {
  constexpr double kRoundingMargin = 1e-5;
  std::array<double, kNumWeightBins> bins;
  bin_weights(logits, max, temperature, bins);
  double running = 0;
  for (size_t b = 0; b < bins.size(); ++b) {
    running += bins[b];
    if (running > wanted * (1 + kRoundingMargin)) return static_cast<float>(b + 2) / kBinsPerUnit;  // one bin to spare
  }
  return std::numeric_limits<float>::infinity();
}

// Sorting the whole vocabulary is rarely needed: the weights' histogram says which band below the largest logit is
// enough.
void cut_by_share(const SamplingParams& p, std::span<const float> logits, float max, std::vector<Candidate>& out) {
  const double wanted = double{p.top_p} * exp_sum(logits, max, p.temperature);
  collect(logits, max - p.temperature * find_band(logits, max, p.temperature, wanted), out);
  std::ranges::sort(out, is_before);
  keep_share(max, p.temperature, wanted, out);
}

void select_by_heap(std::span<const float> logits, size_t count, std::vector<Candidate>& out) {
  out.clear();
  float least = kMasked;  // what the worst kept candidate has, once the heap is full
  for_each_at_least(logits, least, [&](size_t i) {
    if (logits[i] == least) return;  // an equal logit with a higher id does not enter
    if (out.size() == count) {
      std::ranges::pop_heap(out, is_before);
      out.pop_back();
    }
    out.push_back({logits[i], static_cast<TokenId>(i)});
    std::ranges::push_heap(out, is_before);
    if (out.size() == count) least = out.front().logit;
  });
  std::ranges::sort(out, is_before);
}

}  // namespace

void first_candidates(std::span<const float> logits, int64_t count, std::vector<Candidate>& out) {
  out.clear();
  if (count <= 0) return;
  if (count <= kHeapMax) return select_by_heap(logits, static_cast<size_t>(count), out);
  collect(logits, kMasked, out);
  if (static_cast<size_t>(count) < out.size()) {
    std::ranges::nth_element(out, out.begin() + count, is_before);
    out.resize(static_cast<size_t>(count));
  }
  std::ranges::sort(out, is_before);
}

void cut(const SamplingParams& p, std::span<const float> logits, float max, std::vector<Candidate>& out) {
  if (p.top_k > 0) {
    first_candidates(logits, p.top_k, out);
    if (p.top_p < 1) keep_share(max, p.temperature, double{p.top_p} * weight_sum(out, max, p.temperature), out);
  } else if (p.top_p < 1) {
    cut_by_share(p, logits, max, out);
  } else {
    collect(logits, max + p.temperature * least_exponent(p.min_p), out);
  }
  if (p.min_p > 0)
    std::erase_if(out, [&](const Candidate& c) { return weight_of(c.logit, max, p.temperature) < p.min_p; });
  CHECK(!out.empty());
}

}  // namespace deepinfer
