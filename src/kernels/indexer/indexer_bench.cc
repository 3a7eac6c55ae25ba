// SPDX-License-Identifier: MIT
// Index scores of one decode row over a long context (32 heads of 128, ratio 1), then the exact top-512 of them.
#include "kernels/bench_cases.h"

namespace deepinfer {
using namespace bench_ops;

Status bench_indexer(const BenchOptions& options, BenchReport& report) {
  Machine machine(options);
  const int64_t heads = 32, head_dim = 128, rows_per_block = 128, entries = options.quick ? 1 << 12 : 1 << 20,
                bytes = row_bytes(RowFormat::kFp4Group32, head_dim);
  Buffer<uint8_t> plane = random_codes(entries * bytes, 1);
  for (int64_t j = 0; j < entries; ++j)
    for (int64_t s = head_dim / 2; s < bytes; ++s) plane[j * bytes + s] = 126;
  std::vector<int32_t> table;
  for (int32_t b = 0; b < entries / rows_per_block; ++b) table.push_back(b);
  Buffer<bf16> q = random_values(heads * head_dim, 2);
  const Buffer<bf16> weight = random_values(heads, 3);
  machine.kernels.round_rows(
      machine.context,
      {.format = RowFormat::kFp4Group32, .x = {q.data(), {heads, head_dim}}, .out = {q.data(), {heads, head_dim}}});
  Buffer<float> scores(entries);
  const std::vector<int32_t> lane = {0}, visible = {static_cast<int32_t>(entries)};
  const IndexScoresParams p{.q = {q.data(), {1, heads, head_dim}},
                            .weight = {weight.data(), {1, heads}},
                            .weight_scale = 1.f / 64,
                            .keys = {plane.data(),
                                     rows_per_block * bytes,
                                     bytes,
                                     static_cast<int32_t>(rows_per_block),
                                     {table.data(), {1, entries / rows_per_block}}},
                            .lane = {lane.data(), {1}},
                            .num_visible = {visible.data(), {1}},
                            .scores = {scores.data(), {1, entries}}};
  const auto [seconds, peak] = machine.timed(options.quick ? 1 : 7, measure_int8_peak,
                                             [&] { machine.kernels.index_scores(machine.context, p); });
  report.add({.name = "scores over " + std::to_string(entries),
              .value = estimate(p).flops / seconds / 1e9,
              .unit = "GFLOP/s",
              .ceiling = peak.flops / 1e9,
              .ceiling_name = peak.name,
              .note = std::string(to_string(machine.level)) + ", " + std::to_string(seconds * 1e3) + " ms"});
  std::vector<int32_t> out(512);
  const TopKParams top{
      .scores = {scores.data(), {1, entries}}, .num_visible = {visible.data(), {1}}, .out = {out.data(), {1, 512}}};
  const double top_seconds =
      machine.seconds(options.quick ? 1 : 5, [&] { machine.kernels.top_k(machine.context, top); });
  report.add({.name = "top 512 of " + std::to_string(entries),
              .value = estimate(top).bytes_read / top_seconds / 1e9,
              .unit = "GB/s",
              .ceiling = measure_triad_bytes_per_second() / 1e9,
              .ceiling_name = "triad, 1 thread",
              .note = machine.kernels.top_k.name});
  return {};
}

}  // namespace deepinfer
