// SPDX-License-Identifier: MIT
// Many activation rows by packed weights: GFLOP/s against the peak of the level's products beside
// every run: bf16 dot products where it has them, else fused multiply-adds. Weights as the checkpoint has them, and in
// planes as `convert` leaves them.
// `--peer` runs oneDNN on the dequantised weights, packed as it likes.
#include <fmt/format.h>

#include "kernels/bench_cases.h"

namespace deepinfer {
using namespace bench_ops;

Status bench_gemm(const BenchOptions& options, BenchReport& report) {
  Machine machine(options);
  const std::map<std::string, double> peers =
      options.peer ? run_kernel_peer("gemm 8 2304 5120 32 2304 5120 128 2304 5120 512 2304 5120")
                   : std::map<std::string, double>{};
  using enum WeightLayout;
  using enum WeightSet::Kind;
  for (const auto& [kind, layout] : {std::pair(kFp8, kRows), std::pair(kFp8, kPlanes), std::pair(kFp4, kRows),
                                     std::pair(kFp4, kPlanes), std::pair(kBf16, kRows)}) {
    const int64_t out = 2304, in = 5120;
    WeightSet weights(kind, out, in, 2, layout);
    for (const int64_t rows : {4, 8, 32, 128, 512}) {
      const Buffer<bf16> x = random_values(rows * in, 1);
      Buffer<bf16> y(rows * out);
      const auto [seconds, peak] = machine.timed(options.quick ? 1 : 9, measure_bf16_peak, [&] {
        machine.kernels.linear(machine.context, {.x = {x.data(), {rows, in}},
                                                 .weight = weights.next(),
                                                 .round_activation = weights.rounds(),
                                                 .out = {y.data(), {rows, out}}});
      });
      const double flops = 2.0 * static_cast<double>(rows * out * in);
      const char* peer_type = machine.level >= CpuLevel::kBf16 ? "bf16" : "f32";
      const auto peer = peers.find(fmt::format("{} {}x{} M={}", peer_type, out, in, rows));
      report.add({.name = std::string(weights.name()) + " " + std::to_string(out) + "x" + std::to_string(in) +
                          " M=" + std::to_string(rows),
                  .value = flops / seconds / 1e9,
                  .unit = "GFLOP/s",
                  .ceiling = peak.flops / 1e9,
                  .ceiling_name = peak.name,
                  .peer = peer == peers.end() ? std::nullopt
                                              : std::optional<BenchPeer>(
                                                    {std::string("oneDNN ") + peer_type, flops / peer->second / 1e9}),
                  .note = to_string(machine.level)});
      if (options.quick) return {};
    }
  }
  return {};
}

}  // namespace deepinfer
