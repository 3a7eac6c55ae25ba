// SPDX-License-Identifier: MIT
// Golden prompts of model A (golden README): prefill, decode and drafts against the authors' reference.
#include <gtest/gtest.h>

#include <map>
#include <cstdio>

#include "engine/golden_prompts.h"

namespace deepinfer {
namespace {

struct Case {
  int length;
  bool is_exact_prefill, is_exact_decode;
};
constexpr Case kCases[] = {{1, true, true},  {2, true, true},   {3, true, true},   {15, true, true},  {16, true, false}, {17, true, false},
                           {31, false, false}, {33, false, false}, {64, false, false}, {97, false, false}, {200, false, false}};

std::string key(int length, const char* name) { return "p" + std::to_string(length) + "." + name; }

ExactNumbers run_prompt(Engine& engine, int length) {
  const SafetensorsFile& golden = golden_file("prompts.safetensors");
  ExactPrompt prompt{.tokens = golden_tokens(golden, key(length, "tokens")), .decode_tokens = golden_tokens(golden, key(length, "decode_tokens")),
                     .draft_anchors = golden_tokens(golden, key(length, "draft_anchor"))};
  prompt.keeps_all_logits = true;
  auto numbers = run_exact(engine, {prompt}, {});
  EXPECT_TRUE(numbers.ok()) << numbers.status().message();
  return std::move((*numbers)[0]);
}

TEST(GoldenPrompts, PrefillAndDecodeLogitsNONE) {
  EngineOptions o = golden_options(); o.score_rounding = ScoreRounding::kNone;
  auto engine = golden_engine(o);
  const SafetensorsFile& golden = golden_file("prompts.safetensors");
  for (const Case& c : kCases) {
    const ExactNumbers numbers = run_prompt(*engine, c.length);
    const Difference prefill = difference(numbers.logits, golden.floats(key(c.length, "logits")).value());
    const Difference decode = difference(numbers.decode_logits, golden.floats(key(c.length, "decode_logits")).value());
    std::printf("p%-3d prefill max %.5f rms %.5f   decode max %.5f rms %.5f\n", c.length, prefill.max_abs, prefill.rms, decode.max_abs, decode.rms);
  }
}
TEST(GoldenPrompts, PrefillAndDecodeLogits) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  const SafetensorsFile& golden = golden_file("prompts.safetensors");
  double pooled = 0;
  for (const Case& c : kCases) {
    const ExactNumbers numbers = run_prompt(*engine, c.length);
    const Difference prefill = difference(numbers.logits, golden.floats(key(c.length, "logits")).value());
    const Difference decode = difference(numbers.decode_logits, golden.floats(key(c.length, "decode_logits")).value());
    std::printf("p%-3d prefill max %.5f rms %.5f   decode max %.5f rms %.5f\n", c.length, prefill.max_abs, prefill.rms, decode.max_abs, decode.rms);
    EXPECT_LE(prefill.max_abs, c.is_exact_prefill ? 0.05 : 1e9) << c.length;
    EXPECT_LE(decode.max_abs, c.is_exact_decode ? 0.15 : 1e9) << c.length;
    EXPECT_LE(prefill.rms, 0.4) << c.length;
    pooled = std::max(pooled, decode.rms);
  }
  EXPECT_LE(pooled, 0.3);
}

}  // namespace
}  // namespace deepinfer
