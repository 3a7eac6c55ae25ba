// SPDX-License-Identifier: MIT
#include "sampler/sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sampler/cuts.h"
#include "sampler/float4.h"
#include "sampler/noise.h"
#include "sampler/row_edits.h"
#include "sampler/row_scan.h"
#include "tensor/buffer.h"

namespace deepinfer {

struct Sampler::Workspace {
  explicit Workspace(int64_t vocab_size) : logits(vocab_size) { candidates.reserve(static_cast<size_t>(vocab_size)); }
  Buffer<float> logits;  // the row after its edits
  std::vector<Candidate> candidates;
};

namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

NoiseKey noise_key(const SampleRow& row) {
  return {row.params->seed, row.params->choice, static_cast<uint32_t>(row.output_position), NoisePurpose::kTarget};
}

struct Best {
  float score = kMasked;
  TokenId id = -1;
  void offer(float other_score, TokenId other_id) {
    if (other_score > score || (other_score == score && other_id < id) || id < 0) *this = {other_score, other_id};
  }
};

TokenId pick_among(const SampleRow& row, std::span<const Candidate> candidates, float max) {
  const NoiseKey key = noise_key(row);
  Best best;
  for (const Candidate& c : candidates) best.offer((c.logit - max) / row.params->temperature + gumbel(key, c.id), c.id);
  return best.id;
}

// Four tokens' exponents (logit - max) / T, -infinity where masked or beyond the vocabulary.
Float4 exponents(std::span<const float> logits, size_t begin, float max, float temperature) {
  if (begin + 4 <= logits.size()) return (load<Float4>(logits.data() + begin) - max) / temperature;
  Float4 four = splat(kMasked);
  for (size_t i = begin; i < logits.size(); ++i) four[i - begin] = (logits[i] - max) / temperature;
  return four;
}

// Two bounds spare most of the noise. No noise exceeds kGumbelMax, so tokens far below the best score are passed over.
// And noise above t needs a uniform within exp(-t) of 1, because -log(1 - w) >= w: one exponential instead of two
// logarithms. The margin covers the rounding of the exact path.
TokenId pick_among_all(const SampleRow& row, std::span<const float> logits, float max, TokenId likeliest) {
  constexpr float kMargin = 1.0001f;
  const NoiseKey key = noise_key(row);
  Best best;
  best.offer(gumbel(key, likeliest), likeliest);
  for (size_t begin = 0; begin < logits.size(); begin += 4) {
    const Float4 exponent = exponents(logits, begin, max, row.params->temperature);
    if (!any(exponent + kGumbelMax >= best.score)) continue;
    const PhiloxBlock bits = noise_bits(key, static_cast<uint32_t>(begin / 4));
    const Float4 below_one = {1 - uniform_open(bits[0]), 1 - uniform_open(bits[1]), 1 - uniform_open(bits[2]),
                              1 - uniform_open(bits[3])};
    if (!any(below_one <= exp4(exponent - best.score) * kMargin)) continue;
    for (size_t i = 0; i < 4; ++i)
      if (exponent[i] != kMasked) best.offer(exponent[i] + gumbel_of(bits[i]), static_cast<TokenId>(begin + i));
  }
  return best.id;
}

// `likeliest`: the first that holds max; -1 where nobody has looked for it.
TokenId pick(const SampleRow& row, std::span<const float> logits, float max, TokenId likeliest,
             std::vector<Candidate>& candidates) {
  const bool is_greedy = row.params->temperature <= kGreedyTemperature;
  if (is_greedy || !has_cuts(*row.params)) {
    if (likeliest < 0) likeliest = first_of(logits, max);
    return is_greedy ? likeliest : pick_among_all(row, logits, max, likeliest);
  }
  cut(*row.params, logits, max, candidates);
  return pick_among(row, candidates, max);
}

// Logprobs under softmax((logits - max) / temperature).
void write_logprobs(std::span<const float> logits, float max, float temperature, int32_t num_top,
                    std::vector<Candidate>& candidates, SampledToken& out) {
  const double log_sum = std::log(exp_sum(logits, max, temperature));
  const auto logprob = [&](float logit) { return static_cast<float>(double{(logit - max) / temperature} - log_sum); };
  out.logprob = logprob(logits[static_cast<size_t>(out.id)]);
  first_candidates(logits, num_top, candidates);
  out.num_top_logprobs = static_cast<int32_t>(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) out.top_logprobs[i] = {candidates[i].id, logprob(candidates[i].logit)};
}

void sample_row(std::span<const float> model_logits, const SampleRow& row, std::span<float> edited,
                std::vector<Candidate>& candidates, SampledToken& out) {
  out = {};
  const RowScan scan = scan_row(model_logits);
  if (!scan.is_finite) {
    out.error = SampleError::kNotFinite;
    return;
  }
  std::span<const float> logits = model_logits;
  float max = scan.max;
  TokenId likeliest = scan.first;
  if (has_edits(row)) {
    std::ranges::copy(model_logits, edited.begin());
    edit_row(row, edited);
    logits = edited;
    max = max_of(logits);
    likeliest = -1;
  }
  if (max == kMasked) {
    out.error = SampleError::kNothingAllowed;
    return;
  }
  const SamplingParams& p = *row.params;
  out.id = pick(row, logits, max, likeliest, candidates);
  if (!p.top_logprobs) return;
  if (p.logprob_source == LogprobSource::kModel)
    return write_logprobs(model_logits, scan.max, 1, *p.top_logprobs, candidates, out);
  write_logprobs(logits, max, p.temperature <= kGreedyTemperature ? 1 : p.temperature, *p.top_logprobs, candidates,
                 out);
}

}  // namespace

const char* to_string(SampleError error) {
  constexpr const char* kNames[] = {"none", "a logit is NaN or infinite", "every token is masked"};
  return kNames[static_cast<int>(error)];
}

Sampler::Sampler(int64_t vocab_size) : vocab_size_(vocab_size) { CHECK(vocab_size > 0); }
Sampler::~Sampler() = default;

void Sampler::sample(View<const float, dim::rows, dim::vocab> logits, std::span<const SampleRow> rows, ThreadPool& pool,
                     std::span<SampledToken> out) {
  CHECK(logits.size[0] == static_cast<int64_t>(rows.size()) && out.size() == rows.size());
  CHECK(logits.size[1] >= vocab_size_ && logits.stride[1] == 1);
  for (const SampleRow& row : rows) CHECK(row.params && (row.history || !needs_history(*row.params)));
  while (static_cast<int>(workspaces_.size()) < pool.num_threads())
    workspaces_.push_back(std::make_unique<Workspace>(vocab_size_));
  std::atomic<int64_t> next{0};
  const int64_t num_rows = static_cast<int64_t>(rows.size());
  pool.parallel_for(std::min<int64_t>(pool.num_threads(), num_rows), [&](int64_t worker) {
    Workspace& workspace = *workspaces_[static_cast<size_t>(worker)];
    const std::span<float> edited(workspace.logits.data(), static_cast<size_t>(vocab_size_));
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_rows;)
      sample_row({logits.row(i), static_cast<size_t>(vocab_size_)}, rows[static_cast<size_t>(i)], edited,
                 workspace.candidates, out[static_cast<size_t>(i)]);
  });
}

int64_t count_accepted(std::span<const TokenId> drafts, std::span<const TokenId> targets) {
  CHECK(targets.size() > drafts.size());
  size_t count = 0;
  while (count < drafts.size() && drafts[count] == targets[count]) ++count;
  return static_cast<int64_t>(count);
}

SampledToken model_logprobs(std::span<const float> logits, TokenId id, int32_t num_top) {
  CHECK(num_top >= 0 && num_top <= kTopLogprobsMax && id >= 0 && static_cast<size_t>(id) < logits.size());
  SampledToken out{.id = id};
  const RowScan scan = scan_row(logits);
  if (!scan.is_finite) {
    out.error = SampleError::kNotFinite;
    return out;
  }
  std::vector<Candidate> candidates;
  write_logprobs(logits, scan.max, 1, num_top, candidates, out);
  return out;
}

}  // namespace deepinfer
