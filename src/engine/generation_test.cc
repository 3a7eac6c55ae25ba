// SPDX-License-Identifier: MIT
#include "engine/generation.h"

#include <gtest/gtest.h>

#include "engine/golden_prompts.h"

namespace deepinfer {
namespace {

GenerationRequest request_of(bool drafts, float temperature, uint64_t seed) {
  GenerationRequest request;
  request.prompt = golden_tokens(golden_file("prompts.safetensors"), "p33.tokens");
  request.params.temperature = temperature;
  request.params.seed = seed;
  request.max_tokens = 60;
  request.drafts = drafts;
  return request;
}

Generation run(Engine& engine, GenerationRequest request) {
  auto generation = generate(engine, std::move(request), [](TokenId) { return true; });
  EXPECT_TRUE(generation.ok()) << generation.status().message();
  return generation.ok() ? std::move(*generation) : Generation{};
}

TEST(Generation, RefusesAnEmptyPrompt) {
  auto engine = golden_engine();
  GenerationRequest request = request_of(true, 0, 1);
  request.prompt.clear();
  EXPECT_EQ(generate(*engine, request, [](TokenId) { return true; }).status().code(), StatusCode::kInvalidArgument);
}

TEST(Generation, TokensAreTheSameWithDraftsOnAndOff) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  int64_t accepted = 0;
  for (const float temperature : {0.0f, 0.3f, 1.0f}) {
    for (const uint64_t seed : {1, 2}) {
      const Generation on = run(*engine, request_of(true, temperature, seed)),
                       off = run(*engine, request_of(false, temperature, seed));
      EXPECT_EQ(on.tokens, off.tokens) << temperature << " " << seed;
      EXPECT_EQ(off.num_drafted, 0);
      accepted += on.num_accepted;
    }
  }
  std::printf("accepted drafts: %ld\n", static_cast<long>(accepted));
}

// One byte: every layer keeps what its rows need and nothing else.
TEST(Generation, TokensAreTheSameWithExpertsReadWhenTheyAreNeeded) {
  auto engine = golden_engine();
  EngineOptions options = golden_options();
  if (options.target.backend != Backend::kCpu) GTEST_SKIP() << "a device holds all experts";
  const Generation whole = run(*engine, request_of(true, 0, 1));
  EXPECT_EQ(whole.expert_bytes_read, 0);
  options.expert_bytes_max = 1;
  auto streaming = golden_engine(options);
  ASSERT_TRUE(streaming);
  const Generation streamed = run(*streaming, request_of(true, 0, 1));
  EXPECT_EQ(streamed.tokens, whole.tokens);
  EXPECT_GT(streamed.expert_bytes_read, 0);
  options.expert_bytes_max = int64_t{1} << 40;
  auto roomy = golden_engine(options);
  ASSERT_TRUE(roomy);
  run(*roomy, request_of(true, 0, 1));
  EXPECT_EQ(run(*roomy, request_of(true, 0, 1)).expert_bytes_read, 0) << "all that was needed is in memory by now";
}

TEST(Generation, EndsAtAStopTokenAndAtTheLimit) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  GenerationRequest request = request_of(true, 0, 1);
  const Generation whole = run(*engine, request);
  EXPECT_EQ(whole.tokens.size(), 60u);
  EXPECT_EQ(whole.end, GenerationEnd::kLength);
  request.params.stop_ids = {whole.tokens[20]};
  const Generation stopped = run(*engine, request);
  EXPECT_EQ(stopped.end, GenerationEnd::kStop);
  EXPECT_EQ(stopped.tokens.back(), whole.tokens[20]);
  EXPECT_LE(stopped.tokens.size(), 21u);
}

}  // namespace
}  // namespace deepinfer
