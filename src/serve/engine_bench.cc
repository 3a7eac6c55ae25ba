// SPDX-License-Identifier: MIT
// Many requests through the step loop, offline: tokens per second over the number of sequences at once, with and
// without drafts, pipelined and synchronous; the share of the time in which the compute threads had nothing to do
// (goal: under 2 %); prompt tokens per second with and without the decoder's cut to the last window.
#include <fmt/format.h>

#include "serve/bench_requests.h"

namespace deepinfer {
namespace {

struct Throughput {
  int64_t concurrency = 1;
  bool drafts = false, is_on_device = false;
  LoopBenchResult pipelined, synchronous;  // the faster of two runs each
};

// In turns, so that both meet the same neighbours on a shared machine.
Result<Throughput> measure(LoopBench& bench, int64_t concurrency, bool drafts, bool quick) {
  Throughput out{.concurrency = concurrency, .drafts = drafts, .is_on_device = bench.is_on_device()};
  const int64_t num_requests = quick ? 8 : std::max<int64_t>(48, 2 * concurrency);
  for (int round = 0; round < 2; ++round)
    for (const bool pipelined : {true, false}) {
      ASSIGN_OR_RETURN(std::vector<LoopRequest> requests, bench.questions(num_requests, 96));
      ASSIGN_OR_RETURN(
          LoopBenchResult run,
          bench.run(
              {.concurrency = concurrency, .drafts = drafts, .pipelined = pipelined, .profile_ns_max = 300'000'000},
              std::move(requests)));
      LoopBenchResult& best = pipelined ? out.pipelined : out.synchronous;
      if (round == 0 || run.tokens_per_s() > best.tokens_per_s()) best = std::move(run);
    }
  return out;
}

void report_throughput(const Throughput& measured, BenchReport& report) {
  for (const bool pipelined : {true, false}) {
    const LoopBenchResult& run = pipelined ? measured.pipelined : measured.synchronous;
    const std::string share =
        pipelined ? fmt::format("; x {:.3f} of synchronous", run.tokens_per_s() / measured.synchronous.tokens_per_s())
                  : "";
    report.add({.name = fmt::format("{} at once, drafts {}, {}", measured.concurrency, measured.drafts ? "on" : "off",
                                    pipelined ? "pipelined" : "synchronous"),
                .value = run.tokens_per_s(),
                .unit = "tokens/s",
                .note = fmt::format("{} idle {:.2f} %{}; {:.0f} tokens a second of compute CPU; {} rows wasted, "
                                    "drafting rested {} times{}",
                                    measured.is_on_device ? "device" : "compute", 100 * run.idle_share(),
                                    pipelined ? " (goal 2 %)" : "", run.tokens_per_cpu_s(), run.loop.num_wasted_rows,
                                    run.loop.num_draft_rests, share)});
  }
}

Status bench_throughput(LoopBench& bench, const BenchOptions& options, BenchReport& report) {
  const std::vector<int64_t> counts =
      bench.is_on_device() ? std::vector<int64_t>{1, 16, 64, 256} : std::vector<int64_t>{1, 4, 16, 64};
  const auto only = options.extra.find("at_once");
  for (const int64_t concurrency : counts) {
    if (only != options.extra.end() && std::to_string(concurrency) != only->second) continue;
    if (options.quick && concurrency > 4) break;
    for (const bool drafts : {false, true}) {
      ASSIGN_OR_RETURN(const Throughput measured, measure(bench, concurrency, drafts, options.quick));
      report_throughput(measured, report);
    }
  }
  return {};
}

// By CPU time of the engine's thread: the machine may be shared.
Status bench_prompts(LoopBench& bench, const BenchOptions& options, BenchReport& report) {
  double whole_rate = 0;
  for (const ReplayMode replay : {ReplayMode::kOff, ReplayMode::kFast}) {
    std::vector<LoopRequest> requests;
    for (int64_t i = 0; i < (options.quick ? 1 : 4); ++i) requests.push_back(bench.noise(i, 1536, 1));
    ASSIGN_OR_RETURN(
        const LoopBenchResult run,
        bench.run({.concurrency = 1, .drafts = false, .pipelined = false, .has_thread = false, .replay = replay},
                  std::move(requests)));
    const double rate = static_cast<double>(run.num_prompt_tokens) * 1e9 / static_cast<double>(run.loop.cpu_ns);
    const bool whole = replay == ReplayMode::kOff;
    if (whole) whole_rate = rate;
    report.add({.name = whole ? "prompts of 1,536 tokens, every layer over every token"
                              : "prompts of 1,536 tokens, decoder layers over the last window",
                .value = rate,
                .unit = "tokens/CPU s",
                .note = whole ? "" : fmt::format("x {:.2f} of every layer", rate / whole_rate)});
  }
  return {};
}

}  // namespace

Status bench_engine(const BenchOptions& options, BenchReport& report) {
  ASSIGN_OR_RETURN(const auto bench, LoopBench::open(options));
  TRY(bench_throughput(*bench, options, report));
  return bench_prompts(*bench, options, report);
}

}  // namespace deepinfer
