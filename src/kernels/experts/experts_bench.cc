// SPDX-License-Identifier: MIT
// Six of 384 routed experts at released shapes, one row and 64 rows, weights as the checkpoint has them and in planes
// as `convert` leaves them. Weights are 48 distinct experts walked in turn.
#include "kernels/bench_cases.h"

namespace deepinfer {
using namespace bench_ops;

namespace {

void measure(const BenchOptions& options, Machine& machine, WeightLayout layout, double triad, BenchReport& report) {
  const int64_t hidden = 5120, inner = 2304, num_experts = options.quick ? 6 : 48, choices = 6;
  WeightSet up(WeightSet::Kind::kFp4, inner, hidden, static_cast<int>(num_experts), layout),
      down(WeightSet::Kind::kFp4, hidden, inner, static_cast<int>(num_experts), layout);
  std::vector<ExpertMatrices> experts(static_cast<size_t>(num_experts));
  for (ExpertMatrices& e : experts) e = {up.next(), up.next(), down.next()};
  for (const int64_t rows : {1, 64}) {
    const int64_t total = rows * choices;
    const Buffer<bf16> x = random_values(rows * hidden, 1);
    Buffer<bf16> y(total * hidden);
    std::vector<int32_t> begin(static_cast<size_t>(num_experts) + 1), token(static_cast<size_t>(total));
    const std::vector<float> weight(static_cast<size_t>(total), 0.25f);
    int64_t first = 0;  // the next expert to be used, so that one row finds its experts in no cache
    ExpertsParams params{.x = {x.data(), {rows, hidden}},
                         .experts = experts,
                         .begin = {begin.data(), {num_experts + 1}},
                         .token = {token.data(), {total}},
                         .weight = {weight.data(), {total}},
                         .swiglu_limit = 10.f,
                         .out = {y.data(), {total, hidden}}};
    Cost cost;
    const auto [seconds, peak] = machine.timed(options.quick ? 1 : 9, measure_bf16_peak, [&] {
      std::vector<int64_t> load(static_cast<size_t>(num_experts));
      for (int64_t a = 0; a < total; ++a)
        ++load[static_cast<size_t>((first + (rows == 1 ? a : a % num_experts)) % num_experts)];
      for (size_t e = 0; e < load.size(); ++e) begin[e + 1] = begin[e] + static_cast<int32_t>(load[e]);
      for (int64_t a = 0; a < total; ++a) token[static_cast<size_t>(a)] = static_cast<int32_t>(a % rows);
      first += choices;
      machine.kernels.experts(machine.context, params);
      cost = estimate(params);
    });
    const std::string name =
        "experts 6 choices, rows " + std::to_string(rows) + (layout == WeightLayout::kPlanes ? ", in planes" : "");
    report.add({.name = name,
                .value = cost.bytes_read / seconds / 1e9,
                .unit = "GB/s",
                .ceiling = triad / 1e9,
                .ceiling_name = "triad, 1 thread",
                .note = to_string(machine.level)});
    report.add({.name = name,
                .value = cost.flops / seconds / 1e9,
                .unit = "GFLOP/s",
                .ceiling = peak.flops / 1e9,
                .ceiling_name = peak.name,
                .note = to_string(machine.level)});
  }
}

}  // namespace

Status bench_experts(const BenchOptions& options, BenchReport& report) {
  Machine machine(options);
  const double triad = measure_triad_bytes_per_second();
  for (const WeightLayout layout : {WeightLayout::kRows, WeightLayout::kPlanes})
    measure(options, machine, layout, triad, report);
  return {};
}

}  // namespace deepinfer
