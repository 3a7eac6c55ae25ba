// SPDX-License-Identifier: MIT
// deepinfer inspect: what a checkpoint holds, whether it is sound, what it needs on this machine. Exit status 1 when a
// problem makes it unusable; the report is printed all the same.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/json.h"
#include "engram/hasher.h"
#include "model/memory_plan.h"
#include "model/verify.h"
#include "model/weight_table.h"
#include "serve/embedded_model.h"
#include "serve/token_map_of.h"
#include "tools/command.h"
#include "tools/inspect_report.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/progress.h"

namespace deepinfer {
namespace {

struct InspectArguments {
  std::string model = "mini";
  int64_t num_threads = 0;
  int64_t lanes = 1, positions = 0;
  bool verify = false, json = false;
};

// The tokenizer must load and, where there is an Engram, fall into as many classes as the configuration says.
void check_tokenizer(const Checkpoint& checkpoint, InspectReport& report) {
  const auto text = checkpoint.files().text("tokenizer.json", size_t{64} << 20);
  const auto tokenizer =
      text.ok() ? Tokenizer::from_json(text.value()) : Result<std::shared_ptr<const Tokenizer>>(text.status());
  if (!tokenizer.ok()) {
    report.problems.push_back(fmt::format("tokenizer: {}", tokenizer.status().message()));
    return;
  }
  const ModelConfig& config = checkpoint.config();
  if (tokenizer.value()->vocab_size() > config.vocab_size)
    report.problems.push_back(fmt::format("tokenizer: {} ids, the model has {} embedding rows",
                                          tokenizer.value()->vocab_size(), config.vocab_size));
  if (config.engram.empty()) return;
  const auto hasher = EngramHasher::make(config.engram, token_map_of(*tokenizer.value()));
  if (!hasher.ok()) report.problems.push_back(hasher.status().message());
}

void verify(const Checkpoint& checkpoint, const InspectArguments& arguments, InspectReport& report) {
  ThreadPool pool(static_cast<int>(arguments.num_threads));
  Progress progress("verify", static_cast<int64_t>(checkpoint.payload_bytes()));
  const auto advance = [&](uint64_t bytes_done) {
    progress.advance_to(static_cast<int64_t>(bytes_done));
    report.verified_bytes = bytes_done;
    return !interrupted();
  };
  for (std::string& problem : find_nan_tensors(checkpoint, pool, advance))
    report.problems.push_back(std::move(problem));
}

// A card.json beside the checkpoint describes it to people; it is shown as it is.
void read_card(const Checkpoint& checkpoint, InspectReport& report) {
  if (!checkpoint.files().contains("card.json")) return;
  const auto text = checkpoint.files().text("card.json", 1 << 20);
  auto card = text.ok() ? parse_json(text.value()) : Result<Json>(text.status());
  if (card.ok()) report.card = std::move(card).value();
  else report.notes.push_back(fmt::format("card.json: {}", card.status().message()));
}

Result<InspectReport> inspect(const InspectArguments& arguments) {
  InspectReport report;
  report.folder = arguments.model;
  const auto checkpoint = open_checkpoint(arguments.model);
  if (!checkpoint.ok()) return checkpoint.status();
  const Checkpoint& files = checkpoint.value();
  report.config = files.config();
  WeightViews nowhere;
  const std::vector<WeightRow> table = declare_weights(report.config, nowhere);
  report.problems = check_inventory(table, files);
  report.size = measure_model(report.config, table);
  report.num_tensors = static_cast<int64_t>(files.tensors().size());
  report.num_shards = static_cast<int64_t>(files.shard_files().size());
  report.bytes = files.payload_bytes();
  if (files.index_bytes() != 0 && files.index_bytes() != report.bytes)
    report.notes.push_back(
        fmt::format("the index says {} bytes, the shards hold {}", files.index_bytes(), report.bytes));
  const auto num_turned = std::ranges::count_if(
      table, [&](const WeightRow& row) { return row.layout && files.find(row.name + std::string(kPlanesSuffix)); });
  if (num_turned > 0)
    report.notes.push_back(
        fmt::format("layout planes: {} tensors are turned for the CPU (deepinfer convert)", num_turned));
  ASSIGN_OR_RETURN(const MachineMemory machine, read_machine_memory());
  const int64_t positions = arguments.positions > 0 ? arguments.positions : report.config.context_max;
  ASSIGN_OR_RETURN(report.plan, plan_memory(report.config, report.size,
                                            {.lanes = arguments.lanes, .positions = positions}, machine));
  check_tokenizer(files, report);
  read_card(files, report);
  if (arguments.verify) verify(files, arguments, report);
  return report;
}

int run(const InspectArguments& arguments) {
  const auto report = inspect(arguments);
  if (report.ok()) {
    fmt::print("{}\n", arguments.json ? to_json(report_json(report.value())) : report_text(report.value()));
    if (interrupted()) return 130;
    return report.value().problems.empty() ? 0 : 1;
  }
  if (arguments.json)
    fmt::print("{}\n", to_json(Json(Json::Object{{"problems", Json::Array{report.status().message()}}})));
  return exit_status(report.status());
}

}  // namespace

Command inspect_command() {
  const auto arguments = std::make_shared<InspectArguments>();
  return {.name = "inspect",
          .summary = "what a checkpoint holds, whether it is sound, what it needs on this machine",
          .examples =
              "  deepinfer inspect --model /models/DeepSeek-V4.1-Flash\n  deepinfer inspect --model testdata/model_a "
              "--verify --json\n",
          .declare =
              [arguments](OptionSet& options) {
                options.add("--model", arguments->model, "checkpoint folder (default: mini, the embedded model)");
                options.flag("--verify", arguments->verify, "read every tensor and name those that hold a NaN");
                options.flag("--json", arguments->json, "print one JSON object");
                options.add("--threads", arguments->num_threads, kAllowedThreads,
                            "threads for --verify (default 0: one per CPU)");
                options.add("--sequences", arguments->lanes, {1, 1 << 20},
                            "running sequences to plan memory for (default 1)");
                options.add("--tokens", arguments->positions, {0, int64_t{1} << 40},
                            "tokens of global KV to plan memory for (default 0: one full context)");
              },
          .run = [arguments] { return run(*arguments); }};
}

}  // namespace deepinfer
