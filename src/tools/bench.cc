// SPDX-License-Identifier: MIT
// deepinfer bench: runs the benches of the tree by name.
#include "base/bench.h"

#include <fmt/format.h>

#include <memory>

#include "deepinfer_version.h"
#include "tensor/cpu_features.h"
#include "tools/bench_settings.h"
#include "tools/command.h"
#include "tools/nearest_name.h"

namespace deepinfer {

extern const BenchTarget kBenchTargetTable[];  // generated from the *_bench.cc files, ends with a null name

namespace {

struct BenchArguments {
  std::string name, csv_path;
  BenchOptions options;
  int64_t num_threads = 1;
  bool predict = false;
  std::vector<std::string> settings;
};

void list_benches() {
  for (const BenchTarget* target = kBenchTargetTable; target->name; ++target) fmt::print("{}\n", target->name);
}

const BenchTarget* find_bench(const std::string& name) {
  for (const BenchTarget* target = kBenchTargetTable; target->name; ++target)
    if (name == target->name) return target;
  return nullptr;
}

// The exit status.
int refuse_name(const std::string& name) {
  std::vector<std::string> names;
  for (const BenchTarget* target = kBenchTargetTable; target->name; ++target) names.emplace_back(target->name);
  fmt::print(stderr, "deepinfer bench: no bench named '{}'{}; 'deepinfer bench list' names them\n", name,
             did_you_mean(name, names));
  return 2;
}

Status run_bench(const BenchTarget& target, BenchArguments& arguments) {
  for (const std::string& setting : arguments.settings) {
    const size_t at = setting.find('=');
    if (at == std::string::npos) return invalid_argument(fmt::format("--set {}: expected KEY=VALUE", setting));
    const std::string key = setting.substr(0, at), value = setting.substr(at + 1);
    TRY(check_bench_setting(key, value));
    arguments.options.extra[key] = value;
  }
  if (arguments.predict) arguments.options.extra.insert_or_assign("predict", std::string(1, '1'));
  arguments.options.num_threads = static_cast<int>(arguments.num_threads);
  const std::string note =
      fmt::format("commit {} | {} | {} threads", DEEPINFER_COMMIT, describe_cpu(), arguments.num_threads);
  if (!arguments.csv_path.empty()) TRY(BenchReport::check_csv(arguments.csv_path));
  fmt::print("# {} | {}\n", arguments.name, note);
  BenchReport report;
  TRY(target.run(arguments.options, report));
  return arguments.csv_path.empty() ? Status() : report.write_csv(arguments.csv_path, arguments.name, note);
}

}  // namespace

Command bench_command() {
  const auto arguments = std::make_shared<BenchArguments>();
  return {.name = "bench",
          .summary = "run a benchmark by name; 'bench list' names them",
          .examples = "  deepinfer bench list\n  deepinfer bench tokenizer --peer --csv bench/results/tokenizer.csv\n",
          .declare =
              [arguments](OptionSet& options) {
                options.positional("NAME", arguments->name, "name of the bench, or list");
                options.add("--csv", arguments->csv_path, "also write the rows to this file");
                options.flag("--peer", arguments->options.peer, "run the named competitor beside it");
                options.flag("--quick", arguments->options.quick, "smallest cases only");
                options.add("--threads", arguments->num_threads, {1, 1024}, "threads (default 1)");
                options.add("--model", arguments->options.model, "checkpoint folder for benches that run a model");
                options.flag("--predict", arguments->predict,
                             "decode: what the released model would do on named server CPUs");
                options.add("--set", arguments->settings, "KEY=VALUE for one bench; may repeat");
              },
          .run =
              [arguments] {
                if (arguments->name == "list") return list_benches(), 0;
                const BenchTarget* target = find_bench(arguments->name);
                return target ? exit_status(run_bench(*target, *arguments)) : refuse_name(arguments->name);
              }};
}

}  // namespace deepinfer
