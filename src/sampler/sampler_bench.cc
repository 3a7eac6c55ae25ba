// SPDX-License-Identifier: MIT
// Time of one row at the released vocabulary. The ceiling is one reading of the row at the measured memory bandwidth.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/bench.h"
#include "base/philox.h"
#include "sampler/sampler.h"

namespace deepinfer {
namespace {

constexpr int64_t kVocab = 129280, kRows = 16;

// Logits as a language model has them: a broad bulk and a few tokens far above it.
std::vector<float> make_logits(uint64_t seed) {
  Rng rng(seed);
  std::vector<float> logits(static_cast<size_t>(kRows * kVocab));
  for (float& l : logits) l = (rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 6;
  for (int64_t row = 0; row < kRows; ++row)
    for (int i = 0; i < 30; ++i) logits[static_cast<size_t>(row * kVocab) + rng.below(kVocab)] = 10 + 6 * rng.uniform();
  return logits;
}

struct Case {
  const char* name;
  std::function<void(SamplingParams&)> set;
};

const Case kCases[] = {
    {"greedy", [](SamplingParams& p) { p.temperature = 0; }},
    {"temperature 1", [](SamplingParams&) {}},
    {"temperature 1, 20 logprobs", [](SamplingParams& p) { p.top_logprobs = 20; }},
    {"top-p 0.95", [](SamplingParams& p) { p.top_p = 0.95f; }},
    {"top-k 40, top-p 0.95",
     [](SamplingParams& p) {
       p.top_k = 40;
       p.top_p = 0.95f;
     }},
    {"min-p 0.05", [](SamplingParams& p) { p.min_p = 0.05f; }},
    {"temperature 30 (flat)", [](SamplingParams& p) { p.temperature = 30; }},
};

// How often a draft stands when its law differs from the target's by noise of the given strength on the logits: shared
// noise against the best any coupling can do (1 - total variation, what rejection sampling reaches) and against greedy
// drafts.
void bench_acceptance(float strength, BenchReport& report) {
  constexpr int64_t kWords = 2000, kPositions = 2000;
  Rng rng(9);
  Sampler sampler(kWords);
  ThreadPool pool(1);
  const SamplingParams params;
  double overlap = 0, shared = 0, greedy = 0;
  std::vector<float> logits(2 * kWords);
  std::vector<SampledToken> out(2);
  for (int64_t position = 0; position < kPositions; ++position) {
    for (int64_t v = 0; v < kWords; ++v) {
      const float target = (rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 5;
      logits[static_cast<size_t>(v)] = target;
      logits[static_cast<size_t>(kWords + v)] =
          target + (rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 2 * strength;
    }
    const std::vector<SampleRow> rows(2, SampleRow{.params = &params, .output_position = position});
    sampler.sample({logits.data(), {2, kWords}}, rows, pool, out);
    const auto draft_begin = logits.begin() + kWords;
    shared += out[0].id == out[1].id;
    greedy += out[0].id == std::max_element(draft_begin, logits.end()) - draft_begin;
    double target_sum = 0, draft_sum = 0, minimum = 0;
    for (size_t v = 0; v < kWords; ++v) {
      target_sum += std::exp(double{logits[v]});
      draft_sum += std::exp(double{logits[kWords + v]});
    }
    for (size_t v = 0; v < kWords; ++v)
      minimum += std::min(std::exp(double{logits[v]}) / target_sum, std::exp(double{logits[kWords + v]}) / draft_sum);
    overlap += minimum;
  }
  report.add({.name = fmt::format("acceptance, draft noise {}", strength),
              .value = shared / kPositions,
              .unit = "shared",
              .ceiling = overlap / kPositions,
              .ceiling_name = "1 - TV, rejection",
              .peer = BenchPeer{"greedy draft", greedy / kPositions}});
}

}  // namespace

Status bench_sampler(const BenchOptions& options, BenchReport& report) {
  const std::vector<float> logits = make_logits(3);
  const double floor_us = 4e6 * kVocab / measure_triad_bytes_per_second();
  Sampler sampler(kVocab);
  ThreadPool pool(options.num_threads);
  std::vector<SampledToken> out(kRows);
  for (const Case& c : kCases) {
    SamplingParams params;
    c.set(params);
    std::vector<SampleRow> rows(kRows);
    for (int64_t i = 0; i < kRows; ++i) rows[static_cast<size_t>(i)] = {.params = &params, .output_position = i};
    const double seconds = median_seconds(options.quick ? 1 : 7, [&] {
      sampler.sample({logits.data(), {kRows, kVocab}}, rows, pool, out);
    });
    report.add({.name = fmt::format("{} V={}", c.name, kVocab),
                .value = 1e6 * seconds / kRows,
                .unit = "us/row",
                .note = fmt::format("{} threads; reading the row once takes {:.1f} us of memory bandwidth",
                                    options.num_threads, floor_us)});
    if (options.quick) return {};
  }
  for (const float strength : {0.2f, 0.5f, 1.f}) bench_acceptance(strength, report);
  return {};
}

}  // namespace deepinfer
