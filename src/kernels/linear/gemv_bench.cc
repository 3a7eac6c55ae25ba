// SPDX-License-Identifier: MIT
// One activation row by packed weights larger than the caches, at released shapes: GB/s of packed weights against the
// triad. `--peer` runs llama.cpp's row kernels on the same shapes (its Q8_0 has 34 bytes for 32 weights).
#include "kernels/bench_cases.h"

namespace deepinfer {
using namespace bench_ops;

Status bench_gemv(const BenchOptions& options, BenchReport& report) {
  Machine machine(options);
  const double triad = measure_triad_bytes_per_second();
  struct Case {
    WeightSet::Kind kind;
    int64_t out, in;
    int count;
    WeightLayout layout = WeightLayout::kRows;
  };
  const std::vector<Case> cases = {{WeightSet::Kind::kFp8, 5120, 8192, 4},
                                   {WeightSet::Kind::kFp8, 1280, 5120, 16},
                                   {WeightSet::Kind::kFp4, 2304, 5120, 24},
                                   {WeightSet::Kind::kFp4, 5120, 2304, 24},
                                   {WeightSet::Kind::kFp8, 1280, 5120, 16, WeightLayout::kPlanes},
                                   {WeightSet::Kind::kFp4, 2304, 5120, 24, WeightLayout::kPlanes},
                                   {WeightSet::Kind::kFp4, 5120, 2304, 24, WeightLayout::kPlanes},
                                   {WeightSet::Kind::kBf16, 16384, 5120, 2},
                                   {WeightSet::Kind::kFp8, 256, 256, 1}};
  const std::map<std::string, double> peers =
      options.peer ? run_kernel_peer("matvec 5120 8192 2 1280 5120 16 2304 5120 12 5120 2304 12")
                   : std::map<std::string, double>{};
  for (const Case& c : cases) {
    WeightSet weights(c.kind, c.out, c.in, c.count, c.layout);
    const Buffer<bf16> x = random_values(c.in, 1);
    Buffer<bf16> y(c.out);
    const int calls = options.quick ? 1 : std::max(c.count, 256 / c.count);
    const double seconds = machine.seconds(options.quick ? 1 : 7, [&] {
      for (int i = 0; i < calls; ++i)
        machine.kernels.linear(machine.context, {.x = {x.data(), {1, c.in}},
                                                 .weight = weights.next(),
                                                 .round_activation = weights.rounds(),
                                                 .out = {y.data(), {1, c.out}}});
    }) / calls;
    const double bytes = weight_bytes(weights.next());
    const std::string shape = std::to_string(c.out) + "x" + std::to_string(c.in);
    const auto peer = peers.find((c.kind == WeightSet::Kind::kFp4 ? "mxfp4 " : "q8_0 ") + shape);
    // The peer's GB/s are counted in our bytes: the same products in the same time.
    std::optional<BenchPeer> figure;
    if (peer != peers.end() && c.kind != WeightSet::Kind::kBf16)
      figure = {c.kind == WeightSet::Kind::kFp4 ? "llama.cpp MXFP4" : "llama.cpp Q8_0", bytes / peer->second / 1e9};
    report.add({.name = std::string(weights.name()) + " " + shape + " M=1",
                .value = bytes / seconds / 1e9,
                .unit = "GB/s",
                .ceiling = triad / 1e9,
                .ceiling_name = "triad, 1 thread",
                .peer = figure,
                .note = std::string(to_string(machine.level)) + ", " + std::to_string(seconds * 1e6) + " us"});
    if (options.quick) break;
  }
  return {};
}

}  // namespace deepinfer
