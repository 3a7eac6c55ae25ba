// SPDX-License-Identifier: MIT
// Once its workspaces exist, sampling allocates nothing. The allocation functions of this test program count.
#include <gtest/gtest.h>

#include <vector>

#include "base/allocation_count.h"
#include "base/philox.h"
#include "base/token_masks.h"
#include "sampler/sampler.h"

namespace deepinfer {
namespace {

TEST(SamplerAllocation, NothingIsAllocatedInSteadyState) {
  constexpr int64_t kVocab = 5000, kRows = 4;
  Rng rng(2);
  std::vector<float> logits(kRows * kVocab);
  for (float& l : logits) l = rng.uniform() * 8;
  TokenHistory history;
  history.append_output(17);
  TokenMasks masks(1, kVocab);
  masks.allow_all(0);
  std::vector<SamplingParams> params(kRows);
  params[1].top_p = 0.9f;
  params[2].top_k = 2000;
  params[2].frequency_penalty = 0.5f;
  params[2].eos_ids = {1};
  params[2].min_tokens = 100;
  params[3].min_p = 0.1f;
  std::vector<SampleRow> rows;
  for (SamplingParams& p : params) {
    p.top_logprobs = 20;
    rows.push_back({.params = &p, .history = &history, .output_position = 3, .mask = masks.row(0)});
  }
  std::vector<SampledToken> out(kRows);
  Sampler sampler(kVocab);
  ThreadPool pool(2);
  const auto sample = [&] { sampler.sample({logits.data(), {kRows, kVocab}}, rows, pool, out); };
  sample();
  const size_t before = num_allocations;
  for (int i = 0; i < 10; ++i) sample();
  EXPECT_EQ(num_allocations, before);
}

}  // namespace
}  // namespace deepinfer
