// SPDX-License-Identifier: MIT
// Selections over whole golden prompts: which groups the index sources pick, which experts the routers choose. The
// layers run on their own streams here, so a rounding flip upstream may move later picks; most rows must still agree.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "engine/engine_state.h"
#include "engine/golden_prompts.h"

namespace deepinfer {
namespace {

struct Agreement {
  int64_t rows = 0, equal = 0;
  double share() const { return rows ? static_cast<double>(equal) / static_cast<double>(rows) : 1; }
};

std::map<std::string, Agreement> run(int length, ScoreRounding rounding) {
  EngineOptions options = golden_options();
  options.score_rounding = rounding;
  auto engine = golden_engine(options);
  const SafetensorsFile& golden = golden_file("selections.safetensors");
  const std::string prefix = "p" + std::to_string(length) + ".";
  std::map<std::string, Agreement> agreements;
  engine->state().forward->set_trace([&](const TraceTensor& tensor) {
    const std::string name = prefix + "L" + std::to_string(tensor.layer) + "." + std::string(tensor.name);
    if ((tensor.name != "topk" && tensor.name != "gate_idx") || !golden.find(name)) return;
    const auto wanted = golden.integers(name).value();
    const int64_t k = tensor.shape[1];
    if (tensor.shape[0] * k != static_cast<int64_t>(wanted.size())) return;
    const int32_t* ours = static_cast<const int32_t*>(tensor.data);
    Agreement& agreement = agreements["L" + std::to_string(tensor.layer) + "." + std::string(tensor.name)];
    for (int64_t row = 0; row < tensor.shape[0]; ++row) {
      const std::multiset<int64_t> a(ours + row * k, ours + (row + 1) * k),
          b(wanted.begin() + row * k, wanted.begin() + (row + 1) * k);
      ++agreement.rows;
      agreement.equal += a == b;
    }
  });
  std::vector<ExactPrompt> prompts(1);
  prompts[0].tokens = golden_tokens(golden_file("prompts.safetensors"), prefix + "tokens");
  EXPECT_TRUE(run_exact(*engine, std::move(prompts), {}).ok());
  return agreements;
}

using GoldenSelections = AtEveryCpuLevel;
INSTANTIATE_TEST_SUITE_P(Level, GoldenSelections, testing::ValuesIn(golden_cpu_levels()), cpu_level_name);

// The first index source sees nearly undisturbed streams: there the reference's rounding of scores shows. Behind it a
// moved key moves the cut of every later row (16 of up to 200 are kept), so only the picks of experts stay comparable.
TEST_P(GoldenSelections, RowsAgreeWithTheReference) {
  for (const int length : {97, 200}) {
    for (const ScoreRounding rounding : {ScoreRounding::kReference, ScoreRounding::kNone}) {
      std::printf("p%d, scores %s:", length, rounding == ScoreRounding::kNone ? "fp32" : "as the reference");
      Agreement experts, groups;
      for (const auto& [name, agreement] : run(length, rounding)) {
        std::printf(" %s %ld/%ld", name.c_str(), static_cast<long>(agreement.equal), static_cast<long>(agreement.rows));
        Agreement& all = name.ends_with("topk") ? groups : experts;
        all.rows += agreement.rows;
        all.equal += agreement.equal;
        if (name == "L2.topk" && rounding == ScoreRounding::kReference) {
          EXPECT_GE(agreement.share(), 0.93) << length;
        }
      }
      std::printf("\n");
      EXPECT_GE(experts.share(), 0.95) << length;
      EXPECT_GE(groups.share(), 0.5) << length;
    }
  }
}

}  // namespace
}  // namespace deepinfer
