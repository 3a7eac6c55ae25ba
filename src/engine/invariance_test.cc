// SPDX-License-Identifier: MIT
// One result whatever the batch, the chunks or the thread count, bit for bit (replay off): logits of every position,
// decode logits, drafts, draft logits and confidences, for text and image prompts.
#include <gtest/gtest.h>

#include <cstring>

#include "base/philox.h"
#include "engine/golden_prompts.h"

namespace deepinfer {
namespace {

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_equal(const ExactNumbers& a, const ExactNumbers& b, const std::string& what) {
  EXPECT_TRUE(equal_bits(a.logits, b.logits)) << what;
  EXPECT_TRUE(equal_bits(a.all_logits, b.all_logits)) << what << ": all positions";
  EXPECT_TRUE(equal_bits(a.decode_logits, b.decode_logits)) << what << ": decode";
  EXPECT_EQ(a.argmax, b.argmax) << what;
  EXPECT_EQ(a.draft_ids, b.draft_ids) << what;
  EXPECT_TRUE(equal_bits(a.draft_confidences, b.draft_confidences)) << what << ": confidences";
  EXPECT_TRUE(equal_bits(a.draft_logits, b.draft_logits)) << what << ": draft logits";
}

std::vector<ExactPrompt> probes() {
  std::vector<ExactPrompt> prompts;
  for (const char* name : {"p1", "p15", "p97", "p200"})
    prompts.push_back(golden_prompt(golden_file("prompts.safetensors"), name, true));
  prompts.push_back(golden_image_prompt(true));
  return prompts;
}

std::vector<ExactNumbers> run_each_alone(Engine& engine, const RunShape& shape) {
  std::vector<ExactNumbers> numbers;
  for (const ExactPrompt& prompt : probes()) numbers.push_back(run_one(engine, prompt, shape));
  return numbers;
}

TEST(Invariance, ChunksStepsThreadsAndCpuLevelsGiveTheSameBits) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  const auto single = run_each_alone(*engine, {});
  const auto check = [&](const std::vector<ExactNumbers>& others, const std::string& what) {
    for (size_t i = 0; i < single.size(); ++i)
      expect_equal(single[i], others[i], what + ", prompt " + std::to_string(i));
  };
  for (const int64_t chunk : {1, 7, 64, 128})
    check(run_each_alone(*engine, {.chunk = chunk}), "chunks of " + std::to_string(chunk));
  EngineOptions options = golden_options();
  options.num_threads = 2;
  check(run_each_alone(*golden_engine(options), {.chunk = 50}), "two threads");
  options.target.level = CpuLevel::kRef;
  check(run_each_alone(*golden_engine(options), {.chunk = 90}), "reference rows");
}

TEST(Invariance, ABatchWithSixteenOthersInRandomOrderGivesTheSameBits) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  const auto single = run_each_alone(*engine, {});
  for (const uint64_t seed : {1, 2, 3}) {
    Rng rng(seed);
    std::vector<ExactPrompt> prompts = probes();
    for (int i = 0; i < 16; ++i) {
      ExactPrompt other;
      const uint64_t length = 1 + rng.below(120);
      for (uint64_t t = 0; t < length; ++t) other.tokens.push_back(static_cast<TokenId>(rng.below(500)));
      for (int t = 0; t < 20; ++t) other.decode_tokens.push_back(static_cast<TokenId>(rng.below(500)));
      prompts.insert(prompts.begin() + static_cast<int64_t>(rng.below(3)), std::move(other));
    }
    std::vector<size_t> places;
    for (size_t i = 0; i < prompts.size(); ++i)
      if (prompts[i].keeps_all_logits) places.push_back(i);
    const auto numbers = run_exact(*engine, std::move(prompts), {.batched = true, .seed = seed});
    ASSERT_TRUE(numbers.ok()) << numbers.status().message();
    for (size_t i = 0; i < single.size(); ++i)
      expect_equal(single[i], numbers.value()[places[i]],
                   "seed " + std::to_string(seed) + ", prompt " + std::to_string(i));
  }
}

}  // namespace
}  // namespace deepinfer
