// SPDX-License-Identifier: MIT
// Options shared by every command that runs the model.
#pragma once

#include <cstdint>
#include <string>

#include "serve/loaded_model.h"
#include "tools/command.h"

namespace deepinfer {

constexpr Allowed<int64_t> kAllowedThreads = {0, 1024};  // 0: one per CPU

struct ModelOptions {
  std::string model = "mini";         // checkpoint folder, or "mini" for the embedded model
  std::string backend = "auto";       // auto | cpu | cuda | ascend
  std::string numerics = "exact";     // exact | fast
  std::string cpu = "auto";           // auto | ref | avx2 | avx512 | vnni | bf16 | amx
  int64_t num_threads = 0;            // 0: one per CPU the process may use
  std::string expert_memory = "all";  // all | free | GB
  bool preload = false;               // read all weights before the first request
  std::string replay = "fast";        // fast | exact | off
  bool deterministic = false;
};

void declare_model_options(OptionSet& options, ModelOptions& values);

// The checkpoint that --model names, its routed experts as --expert-memory says; with --preload its weights are in
// memory when this returns, unless a device takes them. Errors: of serve's load_model(); resource_exhausted, stopped
// while the weights were read.
Result<LoadedModel> load_model(const ModelOptions& options);

}  // namespace deepinfer
