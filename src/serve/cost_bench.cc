// SPDX-License-Identifier: MIT
// The step-time curve over a mixed run - prompts of all lengths beside decoding, with drafts: |predicted / measured -
// 1| of every step, predicted before it was measured. Goals: 5 % at the median, 15 % at the 99th percentile. Steps are
// measured in CPU time of the engine's thread, because the machine may be shared.
#include <fmt/format.h>

#include "serve/bench_requests.h"

namespace deepinfer {

Status bench_cost(const BenchOptions& options, BenchReport& report) {
  ASSIGN_OR_RETURN(const auto bench, LoopBench::open(options));
  for (const int64_t concurrency : {4, 16}) {
    if (options.quick && concurrency > 4) break;
    std::vector<LoopRequest> requests;
    for (int64_t i = 0; i < 8 * concurrency; ++i) {
      if (i % 5 == 4) {
        requests.push_back(bench->noise(i, 100 + 170 * (i % 7), 8));
        continue;
      }
      ASSIGN_OR_RETURN(LoopRequest request, bench->question(i, 96));
      requests.push_back(std::move(request));
    }
    ASSIGN_OR_RETURN(
        const LoopBenchResult run,
        bench->run({.concurrency = concurrency, .pipelined = false, .has_thread = false, .measures_cpu_time = true},
                   std::move(requests)));
    for (const auto& [share, goal] : {std::pair(0.5, 5), std::pair(0.99, 15)})
      report.add({.name = fmt::format("{} at once, error p{:.0f}", concurrency, 100 * share),
                  .value = 100 * percentile(run.errors, share),
                  .unit = "%",
                  .note = fmt::format("goal {} %; {} steps; the curve is {}trusted at the end", goal, run.errors.size(),
                                      run.loop.trusts_curve ? "" : "not ")});
  }
  return {};
}

}  // namespace deepinfer
