// SPDX-License-Identifier: MIT
// Hit rate over cache size on the public Mooncake traces, through kv and scheduler in virtual time.
#include <fmt/format.h>

#include "base/bench.h"
#include "base/file.h"
#include "scheduler/trace_replay.h"

namespace deepinfer {

Status bench_cache(const BenchOptions& options, BenchReport& report) {
  const struct {
    const char* name;
    double ceiling;
  } kTraces[] = {{"conversation", 37.4}, {"synthetic", 65.1}};
  for (const auto& [name, ceiling] : kTraces) {
    ASSIGN_OR_RETURN(const std::string text,
                     read_file(fmt::format("{}/traces/mooncake-{}_trace.jsonl.gz", DEEPINFER_TESTDATA, name)));
    ASSIGN_OR_RETURN(const std::vector<TraceRequest> trace, parse_trace(text));
    for (const int64_t num_blocks : {2'000, 10'000, 50'000, 200'000, 2'000'000}) {
      if (options.quick && num_blocks > 10'000) break;
      const TraceReport r = replay_trace(trace, num_blocks, 0);
      report.add({.name = fmt::format("{} {} blocks ({:.2f} GB of Flash)", name, num_blocks,
                                      static_cast<double>(num_blocks) * 113'920 / 1e9),
                  .value = 100.0 * static_cast<double>(r.num_hit_tokens) / static_cast<double>(r.num_prompt_tokens),
                  .unit = "% hit",
                  .ceiling = ceiling,
                  .ceiling_name = "infinite cache",
                  .note = fmt::format("{} requests, {} evicted", r.num_requests, r.cache.num_evicted)});
    }
  }
  return {};
}

}  // namespace deepinfer
