// SPDX-License-Identifier: MIT
// Every layer on its own: fed the reference's streams and mix, its outputs are compared with the recorded ones (golden
// README, "per-layer"). The caches are those that the layers themselves wrote. Tolerances are the README's.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <set>

#include "engine/engine_state.h"
#include "engine/golden_prompts.h"

namespace deepinfer {
namespace {

// Relative rms the golden README allows, by name; 0 = exact.
double tolerance_of(const std::string& name) {
  static const std::map<std::string, double> kTolerances = {
      {"attn_in", 1e-3},    {"q", 1e-3},      {"qr", 1e-3},         {"attn_o", 1e-3},  {"z", 1e-3},
      {"attn_out", 1e-3},   {"x_mid", 1e-3},  {"ffn_in", 1e-3},     {"latent", 1e-3},  {"shared_out", 1e-2},
      {"ffn_out", 1e-2},    {"x_out", 1e-3},  {"engram_out", 1e-3}, {"engram_emb", 0}, {"final_h", 1e-3},
      {"final_norm", 1e-3}, {"main_x", 1e-3}, {"draft_h", 1e-3}};
  const auto found = kTolerances.find(name);
  return found == kTolerances.end() ? -1 : found->second;
}

bool is_coefficient(const std::string& name) {
  return name.starts_with("hc_") || name == "pre_out" || name == "gate_w";
}

struct Score {
  int64_t num_values = 0, num_different = 0;
  double worst_rms = 0, worst_abs = 0;
};

class LayerFeeder {
 public:
  explicit LayerFeeder(Engine& engine) : engine_(engine), state_(engine.state()) {
    EXPECT_TRUE(engine.admit({.lane = 3}).ok());
    for (uint32_t b = 0; b < 2; ++b) blocks_.push_back(BlockId{7 - b});
    state_.forward->set_trace([this](const TraceTensor& tensor) { compare(tensor); });
  }
  ~LayerFeeder() { state_.forward->set_trace({}); }

  void run(const SafetensorsFile& golden, const std::string& prefix, std::vector<TokenId> tokens, int64_t position) {
    golden_ = &golden;
    prefix_ = prefix;
    BatchSequence sequence{.lane = 3,
                           .blocks = &blocks_,
                           .position_begin = position,
                           .rows = {0, static_cast<int64_t>(tokens.size())},
                           .num_logits_rows = 1};
    std::vector<TokenId> ngrams;
    ASSERT_TRUE(append_ngrams(state_.lanes[3], sequence, tokens, 4, ngrams).ok());
    remember_tokens(state_.lanes[3], sequence, tokens, 4);
    const SequenceRows rows{
        .lane = 3, .rows = sequence.rows, .position_begin = position, .blocks = blocks_.blocks(), .num_logits_rows = 1};
    ASSERT_TRUE(
        state_.forward->begin({.tokens = tokens, .sequences = {&rows, 1}, .ngrams = ngrams}, state_.caches).ok());
    ASSERT_TRUE(state_.forward->embed().ok());
    check_embedding();
    for (int l = 0; l < state_.config().num_layers; ++l) run_layer(l);
    ASSERT_TRUE(state_.forward->finish().ok());
  }

  void draft(const SafetensorsFile& golden, const std::string& prefix, TokenId anchor, int64_t position) {
    golden_ = &golden;
    prefix_ = prefix;
    const DraftSequence sequence{.lane = 3, .position = position, .anchor = anchor};
    ASSERT_TRUE(state_.forward->draft({&sequence, 1}, state_.caches).ok());
  }

  std::map<std::string, Score> scores;

 private:
  std::string key(int layer, const std::string& name) const {
    const int num = state_.config().num_layers;
    if (name.starts_with("final_") || name == "draft_h") return prefix_ + name;
    if (layer >= num) return prefix_ + "M" + std::to_string(layer - num) + "." + name;
    return prefix_ + "L" + std::to_string(layer) + "." + name;
  }

  void feed(const std::string& name) {
    const auto values = golden_->floats(name).value();
    const auto streams = state_.forward->streams();
    ASSERT_EQ(static_cast<int64_t>(values.size()), streams.num_elements()) << name;
    for (size_t i = 0; i < values.size(); ++i) streams.data[i] = to_bf16(values[i]);
  }

  void check_embedding() {
    const auto values = golden_->floats(key(0, "x_in")).value();
    const auto streams = state_.forward->streams();
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(to_float(streams.data[i]), values[i]) << "embedding " << i;
  }

  void run_layer(int layer) {
    if (state_.config().engram_index(layer) >= 0) {
      if (golden_->find(key(layer - 1, "x_out"))) {
        feed(key(layer - 1, "x_out"));
        ASSERT_TRUE(state_.forward->inject_engram(layer).ok());
      } else {
        ASSERT_TRUE(state_.forward->inject_engram(layer).ok());
      }
    }
    feed(key(layer, "x_in"));
    const auto pre = golden_->floats(key(layer, "pre_in")).value();
    std::copy(pre.begin(), pre.end(), state_.forward->pre().data);
    ASSERT_TRUE(state_.forward->run_layer(layer).ok());
  }

  std::string golden_name(const TraceTensor& tensor) const {
    const std::string name = key(tensor.layer, std::string(tensor.name));
    if (tensor.name == "x_out" && !golden_->find(name)) return key(tensor.layer + 1, "x_in");  // recorded once
    return name;
  }

  void compare(const TraceTensor& tensor) {
    const std::string name(tensor.name);
    if (name == "topk" || name == "gate_idx") return compare_sets(tensor);
    if (name == "engram_rows") return compare_rows(tensor);
    const std::string wanted = golden_name(tensor);
    if (!golden_->find(wanted) || (tolerance_of(name) < 0 && !is_coefficient(name))) return;
    if (name == "x_out" && state_.config().engram_index(tensor.layer + 1) >= 0 &&
        !golden_->find(key(tensor.layer, name)))
      return;
    if (name == "engram_out" && !golden_->find(key(tensor.layer - 1, "x_out"))) return;
    const auto golden = golden_->floats(wanted).value();
    const auto ours = values_of(tensor);
    if (name == "final_norm" && golden.size() != ours.size()) return;  // only the logits row is normed
    ASSERT_EQ(golden.size(), ours.size()) << wanted;
    judge(name, wanted, ours, golden);
  }

  static std::vector<float> values_of(const TraceTensor& tensor) {
    int64_t num = 1;
    for (const int64_t s : tensor.shape) num *= s;
    std::vector<float> values(static_cast<size_t>(num));
    for (int64_t i = 0; i < num; ++i)
      values[static_cast<size_t>(i)] = tensor.dtype == DType::kBF16 ? to_float(static_cast<const bf16*>(tensor.data)[i])
                                                                    : static_cast<const float*>(tensor.data)[i];
    return values;
  }

  void judge(const std::string& name, const std::string& wanted, const std::vector<float>& ours,
             const std::vector<float>& golden) {
    double sum = 0, squares = 0;
    Score& score = scores[name];
    for (size_t i = 0; i < ours.size(); ++i) {
      const double delta = static_cast<double>(ours[i]) - golden[i];
      sum += delta * delta;
      squares += static_cast<double>(golden[i]) * golden[i];
      score.num_different += delta != 0;
      score.worst_abs = std::max(score.worst_abs, std::abs(delta));
      if (is_coefficient(name)) { EXPECT_NEAR(ours[i], golden[i], 1e-4) << wanted; }
    }
    score.num_values += static_cast<int64_t>(ours.size());
    const double rms = squares > 0 ? std::sqrt(sum / squares) : std::sqrt(sum);
    score.worst_rms = std::max(score.worst_rms, rms);
    if (!is_coefficient(name)) { EXPECT_LE(rms, tolerance_of(name)) << wanted; }
  }

  void compare_sets(const TraceTensor& tensor) {
    const std::string wanted = golden_name(tensor);
    if (!golden_->find(wanted)) return;
    const auto golden = golden_->integers(wanted).value();
    const int64_t k = tensor.shape[1];
    ASSERT_EQ(static_cast<int64_t>(golden.size()), tensor.shape[0] * k) << wanted;
    const int32_t* ours = static_cast<const int32_t*>(tensor.data);
    Score& score = scores[std::string(tensor.name)];
    for (int64_t row = 0; row < tensor.shape[0]; ++row) {
      const std::multiset<int64_t> a(ours + row * k, ours + (row + 1) * k),
          b(golden.begin() + row * k, golden.begin() + (row + 1) * k);
      ++score.num_values;
      score.num_different += a != b;
      EXPECT_EQ(a, b) << wanted << " row " << row;
    }
  }

  void compare_rows(const TraceTensor& tensor) {
    const auto golden = golden_->integers(golden_name(tensor)).value();
    const int64_t* ours = static_cast<const int64_t*>(tensor.data);
    for (size_t i = 0; i < golden.size(); ++i) ASSERT_EQ(ours[i], golden[i]) << golden_name(tensor) << " " << i;
  }

  Engine& engine_;
  Engine::State& state_;
  BlockTable blocks_;
  const SafetensorsFile* golden_ = nullptr;
  std::string prefix_;
};

void print(const std::map<std::string, Score>& scores) {
  for (const auto& [name, score] : scores)
    std::printf("  %-14s %8ld values, %6ld differ, worst abs %.3g, worst relative rms %.3g\n", name.c_str(),
                static_cast<long>(score.num_values), static_cast<long>(score.num_different), score.worst_abs,
                score.worst_rms);
}

using GoldenLayers = AtEveryCpuLevel;
INSTANTIATE_TEST_SUITE_P(Level, GoldenLayers, testing::ValuesIn(golden_cpu_levels()), cpu_level_name);

TEST_P(GoldenLayers, PrefillThenTwoDecodeStepsAgreeLayerByLayer) {
  auto engine = golden_engine(open_memory_options());
  ASSERT_TRUE(engine);
  LayerFeeder feeder(*engine);
  const SafetensorsFile& prefill = golden_file("trace_prefill.safetensors");
  feeder.run(prefill, "", golden_tokens(prefill, "tokens"), 0);
  const auto fed = golden_tokens(prefill, "decode_tokens");
  const SafetensorsFile& decode = golden_file("trace_decode.safetensors");
  for (int step = 0; step < 2; ++step) {
    const std::string prefix = "s" + std::to_string(step) + ".";
    feeder.run(decode, prefix, {fed[static_cast<size_t>(step)]}, 34 + step);
    feeder.draft(decode, prefix, fed[static_cast<size_t>(step) + 1], 35 + step);
  }
  print(feeder.scores);
}

}  // namespace
}  // namespace deepinfer
