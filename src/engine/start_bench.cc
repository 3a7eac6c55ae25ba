// SPDX-License-Identifier: MIT
// Starting: how long until an engine stands, and how much of the checkpoint has been read by then. `--model` names the
// folder; with `--set preload=1` the weights are read too, by all threads. Weights that a start does not read cannot
// slow it: scripts/make_released_layout.py makes a folder of the released size that takes no disk.
#include <fmt/format.h>

#include "base/file.h"
#include "engine/bench_model.h"
#include "model/first_touch.h"

namespace deepinfer {
namespace {

// A number of /proc/self/<file>; 0 where the system has none.
double process_number(const char* file, const std::string& key) {
  const auto text = read_file(std::string("/proc/self/") + file, 1 << 16);
  const size_t at = text.ok() ? text.value().find(key + ":") : std::string::npos;
  return at == std::string::npos ? 0 : std::strtod(text.value().c_str() + at + key.size() + 1, nullptr);
}

struct Moment {
  double seconds = clock_seconds();
  double file_pages = 1024 * process_number("status", "RssFile"), read = process_number("io", "rchar"),
         from_disk = process_number("io", "read_bytes");
};

void add_part(const char* name, const Moment& begin, BenchReport& report) {
  const Moment end;
  report.add({.name = name,
              .value = end.seconds - begin.seconds,
              .unit = "s",
              .note = fmt::format("{:.1f} MB of file pages mapped, {:.1f} MB read by calls, {:.1f} MB from the disk",
                                  (end.file_pages - begin.file_pages) * 1e-6, (end.read - begin.read) * 1e-6,
                                  (end.from_disk - begin.from_disk) * 1e-6)});
}

}  // namespace

Status bench_start(const BenchOptions& options, BenchReport& report) {
  const std::string folder = options.model.empty() ? std::string(DEEPINFER_TESTDATA) + "/model_a" : options.model;
  const Moment begin;
  ASSIGN_OR_RETURN(Checkpoint opened, Checkpoint::open(folder));
  const auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  add_part(fmt::format("headers of {} tensors, {}", checkpoint->tensors().size(),
                       bytes_to_string(static_cast<int64_t>(checkpoint->payload_bytes())))
               .c_str(),
           begin, report);
  const Moment bound_from;
  ASSIGN_OR_RETURN(ModelWeights bound, ModelWeights::bind(checkpoint));
  const auto weights = std::make_shared<const ModelWeights>(std::move(bound));
  add_part("weights bound", bound_from, report);
  if (options.extra.contains("preload")) {
    const Moment from;
    ThreadPool pool(options.num_threads);
    first_touch(first_touch_pieces(*weights, true), pool, [](int64_t, int64_t) { return true; });
    add_part("weights read", from, report);
  }
  const Moment engine_from;
  ASSIGN_OR_RETURN(TokenMap token_map, stand_in_classes(weights->config()));
  const auto engine = Engine::open(weights, std::move(token_map),
                                   {.num_threads = options.num_threads,
                                    .target = bench_target(options),
                                    .rows_max = 128,
                                    .lanes_max = 1,
                                    .blocks_max = 16,
                                    .expert_bytes_max = options.extra.contains("preload") ? 0 : 1'000'000'000});
  TRY(engine.ok() ? Status() : engine.status());
  add_part("engine", engine_from, report);
  add_part("all", begin, report);
  return {};
}

}  // namespace deepinfer
