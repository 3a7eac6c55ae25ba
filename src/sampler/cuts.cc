// SPDX-License-Identifier: MIT
#include "sampler/cuts.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/lanes/exponential.h"
#include "sampler/row_scan.h"

namespace deepinfer {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr int64_t kHeapMax = 1024;  // beyond it, selecting once over all tokens is cheaper than a heap

float weight_of(float logit, float max, float temperature) { return exp_in_lanes((logit - max) / temperature); }

void collect(std::span<const float> logits, float least, std::vector<Candidate>& out) {
  out.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= least && logits[i] != kMasked) out.push_back({logits[i], static_cast<TokenId>(i)});
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

double weight_sum(const std::vector<Candidate>& candidates, float max, float temperature) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += double{weight_of(c.logit, max, temperature)};
  return sum;
}

// Sorting the whole vocabulary is rarely needed: widen the band below the largest logit until it holds enough weight.
void cut_by_share(const SamplingParams& p, std::span<const float> logits, float max, std::vector<Candidate>& out) {
  const double wanted = double{p.top_p} * exp_sum(logits, max, p.temperature);
  for (const float band : {3.f, 6.f, 12.f, 24.f}) {
    collect(logits, max - band * p.temperature, out);
    // The sorted sum may differ by rounding from this one; the margin keeps the crossing inside the band.
    if (weight_sum(out, max, p.temperature) < wanted * (1 + 1e-9)) continue;
    std::ranges::sort(out, is_before);
    return keep_share(max, p.temperature, wanted, out);
  }
  collect(logits, kMasked, out);
  std::ranges::sort(out, is_before);
  keep_share(max, p.temperature, wanted, out);
}

void select_by_heap(std::span<const float> logits, size_t count, std::vector<Candidate>& out) {
  out.clear();
  float least = kMasked;  // what the worst kept candidate has, once the heap is full
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= least) continue;  // an equal logit with a higher id does not enter either
    if (out.size() == count) {
      std::ranges::pop_heap(out, is_before);
      out.pop_back();
    }
    out.push_back({logits[i], static_cast<TokenId>(i)});
    std::ranges::push_heap(out, is_before);
    if (out.size() == count) least = out.front().logit;
  }
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
    collect(logits, kMasked, out);
  }
  if (p.min_p > 0)
    std::erase_if(out, [&](const Candidate& c) { return weight_of(c.logit, max, p.temperature) < p.min_p; });
  CHECK(!out.empty());
}

}  // namespace deepinfer
