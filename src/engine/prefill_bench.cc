// SPDX-License-Identifier: MIT
// Prompt tokens per second of one sequence, and the time from start to the first token.
#include <fmt/format.h>

#include "base/clock.h"
#include "engine/bench_model.h"

namespace deepinfer {

Status bench_prefill(const BenchOptions& options, BenchReport& report) {
  const SystemClock clock;
  ASSIGN_OR_RETURN(const BenchModel model, open_bench_model(options, 512, 1));
  const double triad = measure_triad_bytes_per_second() * 1e-9;
  const int64_t first_ns = clock.monotonic_ns();
  BenchBatch first(*model.engine, 1, 16);
  TRY(first.prefill(1, 1));
  const double first_s = model.open_s + static_cast<double>(clock.monotonic_ns() - first_ns) * 1e-9;
  report.add({.name = "start to first token, 1 prompt token", .value = first_s, .unit = "s", .note = model.name});
  for (const int64_t length : {32, 128, 512, 1536}) {
    if (options.quick && length > 32) break;
    Status status;
    const double seconds = median_seconds(length > 128 ? 1 : 3, [&] {
      BenchBatch batch(*model.engine, 1, 16);
      status = batch.prefill(length, 512);
    });
    TRY(std::move(status));
    const double bytes = static_cast<double>((length + 511) / 512) *
                         step_weight_bytes(*model.weights, std::min<int64_t>(length, 512), false);
    report.add({.name = fmt::format("prompt of {} tokens", length),
                .value = static_cast<double>(length) / seconds,
                .unit = "tokens/s",
                .note = fmt::format("{:.3g} GB of weights, {:.2g} GB/s = {:.0f} % of triad {:.3g} GB/s", bytes * 1e-9,
                                    bytes * 1e-9 / seconds, bytes * 1e-7 / seconds / triad, triad)});
  }
  return {};
}

}  // namespace deepinfer
