// SPDX-License-Identifier: MIT
// Decode steps: rows per second over the number of sequences, with and without drafting, against the memory's measured
// speed. With --predict instead: what the released model would do on named server CPUs (engine/server_prediction.h),
// from the shares of their ceilings that the kernels reach here, now.
#include <fmt/format.h>

#include "base/file.h"
#include "engine/bench_model.h"
#include "engine/server_prediction.h"
#include "kernels/bench_cases.h"

namespace deepinfer {
namespace {

using namespace bench_ops;

double linear_seconds(Machine& machine, WeightSet& weights, int64_t out, int64_t in, int64_t rows, int num_calls) {
  const Buffer<bf16> x = random_values(rows * in, 1);
  Buffer<bf16> y(rows * out);
  return machine.seconds(5, [&] {
    for (int i = 0; i < num_calls; ++i)
      machine.kernels.linear(machine.context, {.x = {x.data(), {rows, in}},
                                               .weight = weights.next(),
                                               .round_activation = true,
                                               .out = {y.data(), {rows, out}}});
  }) / num_calls;
}

double index_operations_per_second(Machine& machine) {
  const int64_t heads = 32, dim = 128, entries = 1 << 16, bytes = row_bytes(RowFormat::kFp4Group32, dim);
  Buffer<uint8_t> plane = random_codes(entries * bytes, 1);
  for (int64_t j = 0; j < entries; ++j)
    for (int64_t s = dim / 2; s < bytes; ++s) plane[j * bytes + s] = 126;
  Buffer<bf16> q = random_values(heads * dim, 2);
  const Buffer<bf16> weight = random_values(heads, 3);
  machine.kernels.round_rows(
      machine.context,
      {.format = RowFormat::kFp4Group32, .x = {q.data(), {heads, dim}}, .out = {q.data(), {heads, dim}}});
  Buffer<float> scores(entries);
  const int32_t block = 0, lane = 0, visible = static_cast<int32_t>(entries);
  const IndexScoresParams p{
      .q = {q.data(), {1, heads, dim}},
      .weight = {weight.data(), {1, heads}},
      .weight_scale = 1.f / 64,
      .keys = {plane.data(), entries * bytes, bytes, static_cast<int32_t>(entries), {&block, {1, 1}}},
      .lane = {&lane, {1}},
      .num_visible = {&visible, {1}},
      .scores = {scores.data(), {1, entries}}};
  return 2.0 * static_cast<double>(entries * heads * dim) /
         machine.seconds(5, [&] { machine.kernels.index_scores(machine.context, p); });
}

KernelShares measure_shares(const BenchOptions& options) {
  BenchOptions one = options;
  one.num_threads = 1;
  Machine machine(one);
  const int64_t out = 2304, in = 5120;
  WeightSet weights(WeightSet::Kind::kFp4, out, in, 16);
  const double bytes = weight_bytes(weights.next());
  const double gemv = bytes / linear_seconds(machine, weights, out, in, 1, 16) / measure_read_bytes_per_second();
  const double gemm = 2.0 * 512 * static_cast<double>(out * in) / linear_seconds(machine, weights, out, in, 512, 1) /
                      measure_bf16_peak(machine.level).flops;
  return {gemv, gemm, index_operations_per_second(machine) / measure_int8_peak(machine.level).flops};
}

Status print_predictions(const BenchOptions& options, BenchReport& report) {
  const std::string path = options.model.empty() ? std::string(DEEPINFER_TESTDATA) + "/released" : options.model;
  ASSIGN_OR_RETURN(const std::string text, read_file(path + "/config.json"));
  ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(text));
  WeightViews nowhere;
  const ModelSize size = measure_model(config, declare_weights(config, nowhere));
  const KernelShares shares = measure_shares(options);
  const CpuLevel level = bench_level(options);
  fmt::print(
      "# measured here: FP4 mat-vec {:.0f} % of plain reads, FP4 x 512 rows {:.0f} % of the {} peak, index "
      "scores {:.0f} % of the {} peak (level {}; taken as shares of each machine's peaks)\n"
      "# decode = 1 / (decode_bytes / (bandwidth * gemv) + cache_bytes / bandwidth + index_ops / (2 * peak * "
      "index)); prefill = peak * gemm / ops a token; bandwidth = nominal * {}\n",
      100 * shares.gemv, 100 * shares.gemm, measure_bf16_peak(level).name, 100 * shares.index,
      measure_int8_peak(level).name, to_string(level), kSustained);
  for (const ServerCpu& cpu : server_cpus()) {
    for (const int64_t context : {4096, 131072, 1048576}) {
      const ServerPrediction p = predict(config, size, cpu, shares, context);
      const std::string name = fmt::format("{}, {} tokens", cpu.name, context);
      report.add({.name = name + ", decode",
                  .value = p.decode_tokens_per_second,
                  .unit = "tokens/s",
                  .note = fmt::format("{:.2f} GB of weights, {:.1f} MB of caches, {:.3g} index operations a token",
                                      p.decode_bytes * 1e-9, p.cache_bytes * 1e-6, p.index_operations)});
      if (context == 4096)
        report.add({.name = name + ", prefill", .value = p.prefill_tokens_per_second, .unit = "tokens/s"});
    }
  }
  return {};
}

std::string host_note(const BenchBatch& batch, double seconds, double gigabytes, double triad, int64_t sequences) {
  const int64_t read = batch.last_step().expert_bytes_read;
  return fmt::format("step {:.2f} ms, {:.3g} GB of weights, {:.3g} GB/s = {:.0f} % of triad {:.3g} GB/s{}",
                     seconds * 1e3, gigabytes, gigabytes / seconds, 100 * gigabytes / seconds / triad, triad,
                     read > 0 ? fmt::format(", {} of experts read a row", bytes_to_string(read / sequences)) : "");
}

std::string device_note(const BenchBatch& batch, double seconds, double gigabytes) {
  return fmt::format("step {:.3f} ms, {:.3g} GB of weights, {:.3g} GB/s; device idle {:.1f} %", seconds * 1e3,
                     gigabytes, gigabytes / seconds, 100 * batch.device_idle_share());
}

}  // namespace

Status bench_decode(const BenchOptions& options, BenchReport& report) {
  if (options.extra.contains("predict")) return print_predictions(options, report);
  const bool on_device = bench_target(options).backend == Backend::kCuda;
  ASSIGN_OR_RETURN(const BenchModel model,
                   on_device ? open_bench_model(options, 256, 256) : open_bench_model(options, 128, 16));
  const double triad = on_device ? 0 : measure_triad_bytes_per_second() * 1e-9;
  const bool has_draft = model.weights->config().draft.block_size > 0 && model.weights->config().draft.num_layers > 0;
  const std::vector<int64_t> counts = on_device ? std::vector<int64_t>{1, 16, 64, 256} : std::vector<int64_t>{1, 4, 16};
  for (const int64_t sequences : counts) {
    if (options.quick && sequences > 1) break;
    for (const bool drafts : {false, true}) {
      if (drafts && !has_draft) continue;
      BenchBatch batch(*model.engine, sequences, 16);
      TRY(batch.prefill(256, 128));
      Status status;
      const double seconds = median_seconds(on_device ? 30 : 5, [&] { status = batch.decode(drafts); });
      TRY(std::move(status));
      const double gigabytes = step_weight_bytes(*model.weights, sequences, drafts) * 1e-9;
      report.add({.name = fmt::format("{} sequences at 256 tokens{}", sequences, drafts ? ", drafting" : ""),
                  .value = static_cast<double>(sequences) / seconds,
                  .unit = "rows/s",
                  .note = on_device ? device_note(batch, seconds, gigabytes)
                                    : host_note(batch, seconds, gigabytes, triad, sequences)});
    }
  }
  return {};
}

}  // namespace deepinfer
