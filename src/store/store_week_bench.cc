// SPDX-License-Identifier: MIT
// Hit rate over capacity: a simulated week of the public Mooncake traces through the store.
#include <fmt/format.h>

#include "base/bench.h"
#include "base/file.h"
#include "store/week_simulation.h"

namespace deepinfer {

Status bench_store_week(const BenchOptions& options, BenchReport& report) {
  for (const char* trace : {"conversation", "synthetic"}) {
    ASSIGN_OR_RETURN(const std::string text,
                     read_file(fmt::format("{}/traces/mooncake-{}_trace.jsonl.gz", DEEPINFER_TESTDATA, trace)));
    ASSIGN_OR_RETURN(const std::vector<WeekRequest> requests, parse_week(text, 7 * kDayNs));
    for (const TtlClass ttl_class : {TtlClass::kChat, TtlClass::kAgent}) {
      ASSIGN_OR_RETURN(const WeekReport all, simulate_week(requests, {.ttl_class = ttl_class}));
      const auto add = [&](const std::string& name, const WeekReport& r) {
        report.add({.name = fmt::format("{} {} {}", trace, to_string(ttl_class), name),
                    .value = 100 * r.hit_share(),
                    .unit = "% hit",
                    .ceiling = 100 * all.hit_share(),
                    .ceiling_name = "no capacity limit",
                    .note = fmt::format(
                        "effective TTL {:.1f} h, peak {:.0f} GB, {} copied forward, {} segments expired, "
                        "{} dropped early",
                        r.effective_ttl_hours, static_cast<double>(r.peak_bytes) * 1e-9, r.stats.num_copied_forward,
                        r.stats.num_segments_expired, r.stats.num_segments_dropped_early)});
      };
      add("without limit", all);
      for (const double gb : {1.0, 3.0, 6.0, 12.0, 25.0, 50.0}) {
        if (options.quick && gb != 6.0) continue;
        ASSIGN_OR_RETURN(const WeekReport r, simulate_week(requests, {.capacity_bytes = static_cast<int64_t>(gb * 1e9),
                                                                      .ttl_class = ttl_class,
                                                                      .segment_bytes_max = int64_t{256} << 20}));
        add(fmt::format("{:.0f} GB", gb), r);
      }
      if (options.quick) break;
    }
    if (options.quick) break;
  }
  return {};
}

}  // namespace deepinfer
