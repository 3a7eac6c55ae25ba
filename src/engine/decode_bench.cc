// SPDX-License-Identifier: MIT
// Decode steps: rows per second over the number of sequences, with and without drafting, against the memory's measured
// speed.
#include <fmt/format.h>

#include "engine/bench_model.h"

namespace deepinfer {

Status bench_decode(const BenchOptions& options, BenchReport& report) {
  ASSIGN_OR_RETURN(const BenchModel model, open_bench_model(options, 128, 16));
  const double triad = measure_triad_bytes_per_second() * 1e-9;
  const bool has_draft = model.weights->config().draft.block_size > 0 && model.weights->config().draft.num_layers > 0;
  for (const int64_t sequences : {1, 4, 16}) {
    if (options.quick && sequences > 1) break;
    for (const bool drafts : {false, true}) {
      if (drafts && !has_draft) continue;
      BenchBatch batch(*model.engine, sequences, 16);
      TRY(batch.prefill(256, 128));
      Status status;
      const double seconds = median_seconds(5, [&] { status = batch.decode(drafts); });
      TRY(std::move(status));
      const double gigabytes = step_weight_bytes(*model.weights, sequences, drafts) * 1e-9;
      report.add({.name = fmt::format("{} sequences at 256 tokens{}", sequences, drafts ? ", drafting" : ""),
                  .value = static_cast<double>(sequences) / seconds,
                  .unit = "rows/s",
                  .note = fmt::format(
                      "step {:.2f} ms, {:.3g} GB of weights, {:.3g} GB/s = {:.0f} % of triad {:.3g} GB/s",
                      seconds * 1e3, gigabytes, gigabytes / seconds, 100 * gigabytes / seconds / triad, triad)});
    }
  }
  return {};
}

}  // namespace deepinfer
