// SPDX-License-Identifier: MIT
// Where a step's time goes: every op with its time, bytes, operations and the share of its own ceiling, which is memory
// or arithmetic, whichever takes longer at this machine's measured best. `--set rows=N` sequences decode (default 1),
// `--set context=N` tokens in each (default 256); `--set verify=N` gives each N rows, as a run of N - 1 drafts to
// verify (default 1), and `--set drafts=1` lets the step end with new drafts.
#include <fmt/format.h>

#include "engine/bench_model.h"
#include "kernels/bench_cases.h"
#include "kernels/op_profile.h"

namespace deepinfer {
namespace {

int64_t setting(const BenchOptions& options, const char* name, int64_t fallback) {
  const auto at = options.extra.find(name);
  return at == options.extra.end() ? fallback : std::atoll(at->second.c_str());
}

}  // namespace

Status bench_breakdown(const BenchOptions& options, BenchReport& report) {
  OpProfile profile;
  const int64_t rows = setting(options, "rows", 1), context = setting(options, "context", 256);
  const int64_t verify = setting(options, "verify", 1);
  const bool drafts = setting(options, "drafts", 0) != 0;
  if (verify < 1 || verify > 6 || rows * verify > 64) return invalid_argument("--set verify=: expected 1..6");
  if (rows < 1 || rows > 64 || context < 1 || context > 1900)
    return invalid_argument("--set rows=: expected 1..64; --set context=: expected 1..1900");
  ASSIGN_OR_RETURN(const BenchModel model, open_bench_model(options, 128, rows, &profile));
  const double read = bench_ops::measure_read_bytes_per_second() * options.num_threads,
               peak = bench_ops::measure_bf16_peak(bench_level(options)).flops * options.num_threads;
  BenchBatch batch(*model.engine, rows, 16);
  TRY(batch.prefill(context, 128));
  // The quickest step counts, whole: other work on the machine makes any of them longer.
  const int64_t rounds = options.quick ? 2 : 100;
  OpProfile best;
  double step_seconds = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    profile.ops.clear();
    const double begin = clock_seconds();
    TRY(batch.decode(drafts, verify));
    const double seconds = clock_seconds() - begin;
    if (round > 0 && seconds >= step_seconds) continue;
    step_seconds = seconds;
    best = profile;
  }
  std::vector<std::pair<std::string, OpTime>> ops(best.ops.begin(), best.ops.end());
  std::ranges::sort(ops, std::greater<>(), [](const auto& op) { return op.second.seconds; });
  double sum = 0;
  for (const auto& [name, time] : ops) {
    const double bytes = time.cost.bytes_read + time.cost.bytes_written, flops = time.cost.flops,
                 seconds = time.seconds, memory = bytes / read, arithmetic = flops / peak;
    sum += seconds;
    report.add(
        {.name = name,
         .value = 1 / seconds,
         .unit = "1/s",
         .ceiling = 1 / std::max(memory, arithmetic),
         .ceiling_name = memory > arithmetic ? "memory" : "arithmetic",
         .note = fmt::format("{:.0f} ns in {} calls a step, {:.4g} MB, {:.4g} MFLOP, {:.1f} % of the step",
                             seconds * 1e9, time.calls, bytes * 1e-6, flops * 1e-6, 100 * seconds / step_seconds)});
  }
  report.add({.name = "all ops",
              .value = 100 * sum / step_seconds,
              .unit = "% of step",
              .ceiling = 100,
              .ceiling_name = "the step",
              .note = fmt::format("step {:.1f} us", step_seconds * 1e6)});
  return {};
}

}  // namespace deepinfer
