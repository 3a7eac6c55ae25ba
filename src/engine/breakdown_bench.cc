// SPDX-License-Identifier: MIT
// Where a step's time goes: every op with its time, bytes, operations and the share of its own ceiling, which is memory
// or arithmetic, whichever takes longer at this machine's measured best. `--set rows=N` sequences decode (default 1),
// `--set context=N` tokens in each (default 256); `--set verify=N` gives each N rows, as a run of N - 1 drafts to
// verify (default 1), and `--set drafts=1` lets the step end with new drafts.
#include "engine/bench_model.h"
#include "engine/op_report.h"
#include "kernels/bench_cases.h"

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
    profile.clear();
    const double begin = clock_seconds();
    TRY(batch.decode(drafts, verify));
    const double seconds = clock_seconds() - begin;
    if (round > 0 && seconds >= step_seconds) continue;
    step_seconds = seconds;
    best = profile;
  }
  report_ops(best, step_seconds, read, peak, "", report);
  return {};
}

}  // namespace deepinfer
