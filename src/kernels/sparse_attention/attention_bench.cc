// SPDX-License-Identifier: MIT
// The attention core at released shapes: 64 heads of 512, a window of 128 and 512 selected entries; decode and prefill
// rows.
#include <cmath>

#include "kernels/bench_cases.h"

namespace deepinfer {
using namespace bench_ops;

Status bench_attention(const BenchOptions& options, BenchReport& report) {
  Machine machine(options);
  const int64_t heads = 64, head_dim = 512, entries = 4096, top_k = 512, capacity = 192, rows_per_block = 64;
  const int64_t window_bytes = row_bytes(RowFormat::kFp8Block32, head_dim),
                global_bytes = row_bytes(RowFormat::kFp4Group16, head_dim);
  Buffer<uint8_t> ring(capacity * window_bytes), plane(entries * global_bytes);
  const Buffer<bf16> values = random_values(entries * head_dim, 2);
  machine.kernels.pack_rows(
      machine.context, {.x = {values.data(), {capacity, head_dim}}, .base = ring.data(), .stride_bytes = window_bytes});
  machine.kernels.pack_rows(machine.context, {.format = RowFormat::kFp4Group16,
                                              .x = {values.data(), {entries, head_dim}},
                                              .base = plane.data(),
                                              .stride_bytes = global_bytes});
  std::vector<int32_t> table;
  for (int32_t b = 0; b < entries / rows_per_block; ++b) table.push_back(b);
  const std::vector<float> sink(static_cast<size_t>(heads), 0.1f);
  for (const int64_t rows : {1, 128}) {
    const Buffer<bf16> q = random_values(rows * heads * head_dim, 3);
    Buffer<bf16> out(rows * heads * head_dim);
    std::vector<int32_t> lane(static_cast<size_t>(rows), 0), end(lane.size()), fresh(lane.size(), 0), selected;
    for (int64_t t = 0; t < rows; ++t) end[static_cast<size_t>(t)] = static_cast<int32_t>(4096 + t % 32);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < top_k; ++i) selected.push_back(static_cast<int32_t>(i * 8 + t % 8));
    const SparseAttentionParams p{.q = {q.data(), {rows, heads, head_dim}},
                                  .sink = {sink.data(), heads},
                                  .scale = 1.f / std::sqrt(512.f),
                                  .window = 128,
                                  .lane = {lane.data(), {rows}},
                                  .window_end = {end.data(), {rows}},
                                  .num_fresh = {fresh.data(), {rows}},
                                  .ring = {ring.data(), 0, window_bytes, static_cast<int32_t>(capacity)},
                                  .selected = {selected.data(), {rows, top_k}},
                                  .global = {plane.data(),
                                             rows_per_block * global_bytes,
                                             global_bytes,
                                             static_cast<int32_t>(rows_per_block),
                                             {table.data(), {1, entries / rows_per_block}}},
                                  .out = {out.data(), {rows, heads, head_dim}}};
    const auto [seconds, peak] =
        machine.timed(options.quick ? 1
                      : rows == 1   ? 31
                                    : 5,
                      measure_bf16_peak, [&] { machine.kernels.sparse_attention(machine.context, p); });
    report.add({.name = "640 entries, rows " + std::to_string(rows),
                .value = estimate(p).flops / seconds / 1e9,
                .unit = "GFLOP/s",
                .ceiling = peak.flops / 1e9,
                .ceiling_name = peak.name,
                .note = std::string(to_string(machine.level)) + ", " +
                        std::to_string(seconds / static_cast<double>(rows) * 1e6) + " us a row"});
    if (options.quick) break;
  }
  return {};
}

}  // namespace deepinfer
