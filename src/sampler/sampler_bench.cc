// SPDX-License-Identifier: MIT
// Time of one row at the released vocabulary. The ceiling is one reading of the row at the measured memory bandwidth.
#include <fmt/format.h>

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
    if (options.quick) break;
  }
  return {};
}

}  // namespace deepinfer
