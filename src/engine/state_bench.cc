// SPDX-License-Identifier: MIT
// Sequence states and blocks as bytes: how fast a frame is made, read and put back, and a block copied, beside the
// triad's bytes per second of the same run. In CPU time of the calling thread. These rates decide whether a preempted
// sequence is worth a snapshot (SnapshotOptions::bytes_per_ns).
#include <vector>

#include "base/crc32c.h"
#include "engine/bench_model.h"
#include "engine/sequence_frame.h"

namespace deepinfer {
namespace {

void add_rate(BenchReport& report, const std::string& name, double num_bytes, double seconds, double triad) {
  report.add({.name = name,
              .value = num_bytes * 1e-9 / seconds,
              .unit = "GB/s",
              .ceiling = triad,
              .ceiling_name = "triad",
              .note = std::to_string(static_cast<int64_t>(num_bytes)) + " bytes in " +
                      std::to_string(static_cast<int64_t>(seconds * 1e6)) + " us"});
}

Status bench_blocks(Engine& engine, double triad, BenchReport& report) {
  constexpr int kRounds = 64;
  std::vector<uint8_t> bytes(static_cast<size_t>(engine.cache_layout().block_bytes));
  const double num_bytes = static_cast<double>(bytes.size()) * kRounds;
  Status status;
  const auto rounds = [&](auto&& copy) {
    return median_cpu_seconds(9, [&] {
      for (uint32_t i = 0; i < kRounds && status.ok(); ++i) status = copy(BlockId{i % 8});
    });
  };
  add_rate(report, "blocks to host memory", num_bytes,
           rounds([&](BlockId block) { return engine.read_block(block, bytes); }), triad);
  add_rate(report, "blocks from host memory", num_bytes,
           rounds([&](BlockId block) { return engine.write_block(block, bytes); }), triad);
  return status;
}

}  // namespace

Status bench_state(const BenchOptions& options, BenchReport& report) {
  ASSIGN_OR_RETURN(const BenchModel model, open_bench_model(options, 512, 1));
  Engine& engine = *model.engine;
  const double triad = measure_triad_bytes_per_second() * 1e-9;
  std::vector<uint8_t> megabytes(size_t{4} << 20, 0x5A);
  Status status;
  add_rate(report, "crc32c", static_cast<double>(megabytes.size()),
           median_cpu_seconds(9, [&] { status = crc32c(megabytes) ? Status() : internal_error("crc32c is 0"); }),
           triad);
  TRY(status);
  BenchBatch batch(engine, 1, 16);
  TRY(batch.prefill(512, 512));
  const std::vector<BlockId> blocks = {BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}};
  SequenceFrame frame;
  frame.moment.position = 512;
  frame.tokens.assign(512, 0);
  std::vector<uint8_t> bytes;
  const double save_s = median_cpu_seconds(9, [&] {
    auto saved = export_sequence(engine, 0, frame, blocks);
    status = saved.status();
    if (saved.ok()) bytes = std::move(*saved);
  });
  TRY(status);
  add_rate(report, "state of 512 tokens to a frame", static_cast<double>(bytes.size()), save_s, triad);
  const double restore_s = median_cpu_seconds(9, [&] {
    auto read = decode_sequence_frame(bytes);
    status = read.ok() ? import_sequence(engine, 0, *read, blocks) : read.status();
  });
  TRY(status);
  add_rate(report, "a frame back into a lane", static_cast<double>(bytes.size()), restore_s, triad);
  return bench_blocks(engine, triad, report);
}

}  // namespace deepinfer
