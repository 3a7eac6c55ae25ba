// SPDX-License-Identifier: MIT
// Rows of a bench that says where a step's time goes: ops by their time, each with its share of its own ceiling (memory
// or arithmetic, whichever takes longer) and of the step, then their sum.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/bench.h"
#include "kernels/op_profile.h"

namespace deepinfer {

// `profile` has the ops of one step of `step_seconds`; `label` begins every row's name.
inline void report_ops(const OpProfile& profile, double step_seconds, double bytes_per_second, double flops_per_second,
                       const std::string& label, BenchReport& report) {
  std::vector<std::pair<std::string, OpTime>> ops(profile.ops.begin(), profile.ops.end());
  std::ranges::sort(ops, std::greater<>(), [](const auto& op) { return op.second.seconds; });
  double sum = 0;
  for (const auto& [name, time] : ops) {
    const double bytes = time.cost.bytes_read + time.cost.bytes_written, flops = time.cost.flops,
                 seconds = std::max(time.seconds, 1e-12), memory = bytes / bytes_per_second,
                 arithmetic = flops / flops_per_second, least = std::max(memory, arithmetic);
    sum += time.seconds;
    report.add(
        {.name = label + name,
         .value = 1 / seconds,
         .unit = "1/s",
         .ceiling = least > 0 ? 1 / least : 0,
         .ceiling_name = memory > arithmetic ? "memory" : "arithmetic",
         .note = fmt::format("{:.0f} ns in {} calls a step, {:.4g} MB, {:.4g} MFLOP, {:.1f} % of the step",
                             seconds * 1e9, time.calls, bytes * 1e-6, flops * 1e-6, 100 * seconds / step_seconds)});
  }
  const auto add_sum = [&](const char* name, double seconds, const std::string& note) {
    report.add({.name = label + name,
                .value = 100 * seconds / step_seconds,
                .unit = "% of step",
                .ceiling = 100,
                .ceiling_name = "the step",
                .note = note});
  };
  if (profile.own_seconds > 0)
    add_sum("the profile itself", profile.own_seconds, fmt::format("{:.0f} ns", profile.own_seconds * 1e9));
  add_sum("all ops", sum + profile.own_seconds, fmt::format("step {:.1f} us", step_seconds * 1e6));
}

}  // namespace deepinfer
