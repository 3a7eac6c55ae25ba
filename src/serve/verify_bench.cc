// SPDX-License-Identifier: MIT
// Confidence-scheduled verification against all drafts of every block: verified drafts (rows less the anchor) and
// tokens a verify run, and tokens per CPU time. Published for production (decision 12): verified drafts 5.00 -> 3.2
// to 4.4, accepted length 3.29 -> 3.20, throughput + 4 to 7 %.
#include <fmt/format.h>

#include "serve/bench_requests.h"

namespace deepinfer {
namespace {

Status bench_case(LoopBench& bench, int64_t concurrency, bool fixed, double& fixed_rate, BenchReport& report) {
  ASSIGN_OR_RETURN(std::vector<LoopRequest> requests, bench.questions(std::max<int64_t>(24, 2 * concurrency), 96));
  ASSIGN_OR_RETURN(const LoopBenchResult run, bench.run({.concurrency = concurrency,
                                                         .verifies_all = fixed,
                                                         .rests_from_drafts = false,
                                                         .pipelined = false,
                                                         .has_thread = false,
                                                         .measures_cpu_time = true},
                                                        std::move(requests)));
  const double runs = static_cast<double>(std::max<int64_t>(1, run.num_decode_runs)), rate = run.tokens_per_cpu_s();
  if (fixed) fixed_rate = rate;
  const std::string name = fmt::format("{} at once, {}", concurrency, fixed ? "fixed" : "scheduled");
  report.add({.name = name + ", verified drafts a run",
              .value = static_cast<double>(run.num_verified) / runs,
              .unit = "drafts",
              .note = fixed ? "published 5.00" : "published 3.2 to 4.4"});
  report.add({.name = name + ", tokens a run",
              .value = 1 + static_cast<double>(run.num_accepted) / runs,
              .unit = "tokens",
              .note = fmt::format(
                  "published {}; {:.0f} tokens/CPU s{}; drafting paused {} times", fixed ? "3.29" : "3.20", rate,
                  fixed ? "" : fmt::format(" = x {:.3f} of fixed", rate / fixed_rate), run.loop.num_draft_pauses)});
  return {};
}

}  // namespace

Status bench_verify(const BenchOptions& options, BenchReport& report) {
  ASSIGN_OR_RETURN(const auto bench, LoopBench::open(options));
  if (bench->draft_block() == 0) return invalid_argument("bench verify: the model has no draft head");
  for (const int64_t concurrency : {1, 8, 32}) {
    if (options.quick && concurrency > 1) break;
    double fixed_rate = 0;
    for (const bool fixed : {true, false}) TRY(bench_case(*bench, concurrency, fixed, fixed_rate, report));
  }
  return {};
}

}  // namespace deepinfer
