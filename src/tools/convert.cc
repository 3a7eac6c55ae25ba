// SPDX-License-Identifier: MIT
// deepinfer convert: writes a checkpoint anew in the layout that the CPU's products read fastest, and checks that two
// checkpoints hold the same values.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "model/convert.h"
#include "serve/embedded_model.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/progress.h"

namespace deepinfer {
namespace {

struct ConvertArguments {
  std::string model = "mini", output, layout = "planes";
  int64_t num_threads = 0;
  bool verify = false;
};

Status convert(const ConvertArguments& arguments) {
  ASSIGN_OR_RETURN(const Checkpoint from, open_checkpoint(arguments.model));
  ThreadPool pool(static_cast<int>(arguments.num_threads));
  // A checkpoint that stands already is only checked; either form of its configuration makes it one.
  const bool is_there = arguments.verify && (std::filesystem::exists(arguments.output + "/config.json") ||
                                             std::filesystem::exists(arguments.output + "/inference/config.json"));
  const WeightLayout layout = arguments.layout == "planes" ? WeightLayout::kPlanes : WeightLayout::kRows;
  if (!is_there) {
    Progress bar("convert", static_cast<int64_t>(from.payload_bytes()));
    TRY(convert_checkpoint(from, arguments.output, layout, pool, [&](uint64_t bytes) {
      bar.advance_to(static_cast<int64_t>(bytes));
      return !interrupted();
    }));
  }
  ASSIGN_OR_RETURN(const Checkpoint to, Checkpoint::open(arguments.output));
  if (arguments.verify) {
    TRY(check_layout(to, layout));
    Progress bar("verify", static_cast<int64_t>(from.payload_bytes()));
    TRY(compare_checkpoints(from, to, pool, [&](uint64_t bytes) {
      bar.advance_to(static_cast<int64_t>(bytes));
      return !interrupted();
    }));
  }
  fmt::print("{}: {} tensors, {} bytes{}\n", arguments.output, to.tensors().size(), to.payload_bytes(),
             arguments.verify ? ", the values of " + arguments.model : "");
  return {};
}

}  // namespace

Command convert_command() {
  const auto arguments = std::make_shared<ConvertArguments>();
  return {
      .name = "convert",
      .summary = "repack a checkpoint for CPUs that mostly prefill; verify that the values are the same",
      .examples =
          "  deepinfer convert --model /models/DeepSeek-V4.1-Flash --output /models/flash-planes --verify\n"
          "  deepinfer convert --model /models/flash-planes --output /models/flash-rows --layout rows\n",
      .declare =
          [arguments](OptionSet& options) {
            options.add("--model", arguments->model, "checkpoint to read (default: mini, the embedded model)");
            options.add("--output", arguments->output,
                        "folder to write; after an interruption the same command goes on behind the last whole shard");
            options.choice(
                "--layout", arguments->layout, {"planes", "rows"},
                "planes: turned for a CPU's products of many rows, slower for one; rows: as released (default planes)");
            options.flag(
                "--verify", arguments->verify,
                "compare all values afterwards; an output that is there is only compared, values and --layout");
            options.add("--threads", arguments->num_threads, kAllowedThreads, "threads (default 0: one per CPU)");
          },
      .run =
          [arguments] {
            if (arguments->output.empty()) {
              fmt::print(stderr, "deepinfer: convert needs --output FOLDER\n");
              return 2;
            }
            const Status status = convert(*arguments);
            // exit_status() says nothing after Ctrl-C; what was kept is worth a line.
            if (interrupted() && !status.ok()) fmt::print(stderr, "deepinfer: {}\n", status.message());
            return exit_status(status);
          }};
}

}  // namespace deepinfer
