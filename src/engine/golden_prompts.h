// SPDX-License-Identifier: MIT
// Test only: the golden model and its prompts, opened once per test binary.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/exact_run.h"
#include "tensor/safetensors.h"

namespace deepinfer {

inline std::string golden_path(const std::string& name) {
  return std::string(DEEPINFER_TESTDATA) + "/model_a/golden/" + name;
}

inline const SafetensorsFile& golden_file(const std::string& name) {
  static std::map<std::string, SafetensorsFile> files;
  auto found = files.find(name);
  if (found == files.end()) found = files.emplace(name, SafetensorsFile::read(golden_path(name)).value()).first;
  return found->second;
}

inline std::vector<TokenId> golden_tokens(const SafetensorsFile& file, const std::string& name) {
  const auto values = file.integers(name).value();
  return {values.begin(), values.end()};
}

inline TokenMap golden_token_map() {
  const auto classes = golden_file("engram_map.safetensors").integers("token_map").value();
  return token_map_from_classes({classes.begin(), classes.end()}).value();
}

inline std::shared_ptr<const ModelWeights> open_weights(const std::string& folder) {
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.status().message();
    return nullptr;
  }
  auto weights = ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint).value()));
  if (!weights.ok()) {
    ADD_FAILURE() << weights.status().message();
    return nullptr;
  }
  return std::make_shared<const ModelWeights>(std::move(weights).value());
}

inline std::shared_ptr<const ModelWeights> golden_weights() {
  static const std::shared_ptr<const ModelWeights> weights = open_weights(std::string(DEEPINFER_TESTDATA) + "/model_a");
  return weights;
}

// What a golden test runs at on the host: each level of this machine in turn (AtEveryCpuLevel), as with --cpu.
inline CpuLevel& golden_cpu_level() {
  static CpuLevel level = fastest_cpu_level();
  return level;
}

inline EngineOptions host_options() {
  EngineOptions options;
  options.num_threads = 1;
  options.rows_max = 256;
  options.logits_rows_max = 256;
  options.lanes_max = 20;
  options.blocks_max = 64;
  options.context_max = 1024;
  options.target = {Backend::kCpu, golden_cpu_level()};
  return options;
}

// Golden tests run on the device where this machine has one.
inline EngineOptions golden_options() {
  static const bool has_device = open_cuda_device().ok();
  EngineOptions options = host_options();
  if (has_device) options.target = {Backend::kCuda};
  return options;
}
// With memory that a test can look into, for what it costs a device to work out of the host's.
inline EngineOptions open_memory_options() {
  EngineOptions options = golden_options();
  options.cuda = {.waits_after_each_op = true, .keeps_memory_on_host = true};
  return options;
}

inline std::unique_ptr<Engine> golden_engine(const EngineOptions& options = golden_options()) {
  auto engine = Engine::open(golden_weights(), golden_token_map(), options);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status().message();
    return nullptr;
  }
  return std::move(engine).value();
}

inline std::vector<CpuLevel> golden_cpu_levels() {
  if (open_cuda_device().ok()) return {fastest_cpu_level()};  // golden_options() take the device
  std::vector<CpuLevel> levels;
  for (const CpuLevel level : {CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kVnni, CpuLevel::kBf16})
    if (level <= machine_cpu_level()) levels.push_back(level);
  if (levels.empty()) levels.push_back(CpuLevel::kRef);
  return levels;
}

class AtEveryCpuLevel : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override { golden_cpu_level() = GetParam(); }
  void TearDown() override { golden_cpu_level() = fastest_cpu_level(); }
};
inline std::string cpu_level_name(const testing::TestParamInfo<CpuLevel>& info) { return to_string(info.param); }

// A prompt of a golden file with its fed tokens and anchors.
inline ExactPrompt golden_prompt(const SafetensorsFile& file, const std::string& name, bool keeps_all_logits = false) {
  ExactPrompt prompt{.tokens = golden_tokens(file, name + ".tokens"),
                     .decode_tokens = golden_tokens(file, name + ".decode_tokens"),
                     .draft_anchors = golden_tokens(file, name + ".draft_anchor"),
                     .keeps_all_logits = keeps_all_logits};
  return prompt;
}

// The multimodal prompt: image spans are runs of types >= 0, their rows those the reference's projector made.
inline ExactPrompt golden_image_prompt(bool keeps_all_logits = false) {
  const SafetensorsFile& file = golden_file("vision.safetensors");
  ExactPrompt prompt = golden_prompt(file, "mm", keeps_all_logits);
  const auto types = file.integers("mm.types").value();
  const auto embed = file.floats("mm.embed_rows").value();
  const int64_t num = static_cast<int64_t>(types.size()), hidden = static_cast<int64_t>(embed.size()) / num;
  for (int64_t begin = 0; begin < num; ++begin) {
    if (types[static_cast<size_t>(begin)] != 0) continue;
    int64_t end = begin;
    while (types[static_cast<size_t>(end++)] != 3) {}
    auto rows = std::make_shared<Buffer<bf16>>((end - begin) * hidden);
    for (int64_t i = 0; i < rows->size(); ++i) (*rows)[i] = to_bf16(embed[static_cast<size_t>(begin * hidden + i)]);
    prompt.images.push_back({{begin, end}, rows});
    begin = end - 1;
  }
  return prompt;
}

inline ExactNumbers run_one(Engine& engine, ExactPrompt prompt, const RunShape& shape = {}) {
  std::vector<ExactPrompt> prompts;
  prompts.push_back(std::move(prompt));
  auto numbers = run_exact(engine, std::move(prompts), shape);
  EXPECT_TRUE(numbers.ok()) << numbers.status().message();
  return numbers.ok() ? std::move((*numbers)[0]) : ExactNumbers{};
}

struct Difference {
  double max_abs = 0, rms = 0;
};

inline Difference difference(std::span<const float> ours, std::span<const float> golden) {
  Difference d;
  EXPECT_EQ(ours.size(), golden.size());
  for (size_t i = 0; i < std::min(ours.size(), golden.size()); ++i) {
    const double delta = std::abs(static_cast<double>(ours[i]) - golden[i]);
    d.max_abs = std::isnan(delta) ? INFINITY : std::max(d.max_abs, delta);
    d.rms += delta * delta;
  }
  d.rms = std::sqrt(d.rms / static_cast<double>(std::max<size_t>(1, ours.size())));
  return d;
}

}  // namespace deepinfer
