// SPDX-License-Identifier: MIT
#include "scheduler/trace_replay.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace deepinfer {
namespace {

TraceReport replay(const char* name, int64_t num_blocks) {
  const auto text = read_file(std::string(DEEPINFER_TESTDATA) + "/traces/" + name);
  CHECK(text.ok());
  const auto trace = parse_trace(text.value());
  CHECK(trace.ok());
  return replay_trace(trace.value(), num_blocks, 0);
}

double share(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

}  // namespace

TEST(TraceReplay, NamesTheDamagedLine) {
  const auto trace =
      parse_trace("{\"timestamp\":0,\"input_length\":5,\"output_length\":1,\"hash_ids\":[1]}\n{\"timestamp\":-1}\n");
  ASSERT_FALSE(trace.ok());
  EXPECT_NE(trace.status().message().find("line 2"), std::string::npos);
  EXPECT_FALSE(parse_trace("{\"timestamp\":0,\"input_length\":5000,\"output_length\":1,\"hash_ids\":[1]}").ok());
}

// Ceilings counted from the traces alone: an id whose whole prefix was seen before is a hit. By tokens 37.4 % and 65.1
// %, by the traces' own blocks 36.6 % and 64.0 %. Ours may differ by a little both ways: blocks of 128 tokens share a
// part of a 512-token block, and the last, partial block of a prompt is not kept.
TEST(TraceReplay, ReachesTheInfiniteCacheCeilings) {
  const TraceReport conversation = replay("mooncake-conversation_trace.jsonl.gz", 2'000'000);
  EXPECT_EQ(conversation.num_requests, 12031);
  EXPECT_NEAR(share(conversation.num_hit_tokens, conversation.num_prompt_tokens), 0.374, 0.004);
  EXPECT_NEAR(share(conversation.num_hit_trace_blocks, conversation.num_trace_blocks), 0.366, 0.004);
  const TraceReport synthetic = replay("mooncake-synthetic_trace.jsonl.gz", 1'000'000);
  EXPECT_NEAR(share(synthetic.num_hit_tokens, synthetic.num_prompt_tokens), 0.651, 0.004);
  EXPECT_NEAR(share(synthetic.num_hit_trace_blocks, synthetic.num_trace_blocks), 0.640, 0.004);
}

TEST(TraceReplay, LessMemoryGivesFewerHitsAndTheSameRequests) {
  const TraceReport small = replay("mooncake-synthetic_trace.jsonl.gz", 20'000),
                    large = replay("mooncake-synthetic_trace.jsonl.gz", 100'000);
  EXPECT_LT(small.num_hit_tokens, large.num_hit_tokens);
  EXPECT_EQ(small.num_requests, large.num_requests);
  EXPECT_GT(small.cache.num_evicted, 0);
}

}  // namespace deepinfer
