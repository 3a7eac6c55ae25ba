// SPDX-License-Identifier: MIT
// Once its buffers have grown, the answer side allocates nothing per token: parser and encoders, one token a step. The
// allocation functions of this test program are replaced by ones that count.
#include <gtest/gtest.h>

#include "base/allocation_count.h"
#include "base/json.h"
#include "chat/stream_parser.h"
#include "protocol/response_encoder.h"

namespace deepinfer {
namespace {

TEST(ResponseAllocation, NothingIsAllocatedPerTokenInSteadyState) {
  const auto tokenizer = Tokenizer::load(std::string(DEEPINFER_TESTDATA) + "/codec/tokenizer_v41.json.gz");
  ASSERT_TRUE(tokenizer.ok());
  const auto vocabulary = OutputVocabulary::create(tokenizer.value());
  ASSERT_TRUE(vocabulary.ok());
  std::string value;
  for (int i = 0; i < 300; ++i) value += "line \"" + std::to_string(i) + "\" of a file, 行 🦀\n";
  const std::string text =
      "Let me write it.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" "
      "string=\"true\">" +
      value;
  const auto ids = tokenizer.value()->encode_with_added("thinking about it </think>" + text);
  ASSERT_GT(ids.size(), 4000u);
  for (const Codec& codec : codecs()) {
    ResponseContext context;
    context.stream = true;
    ResponseIdentity identity;
    identity.id = "resp-1";
    StreamParserOptions options;
    options.parsing.parse_tool_calls = true;
    options.parsing.thinking_stage = ThinkingStage::kReasoningStart;
    options.parsing.stop_sequences = {"never to be seen"};
    StreamParser parser(vocabulary.value(), options);
    const auto encoder = codec.encode(context, identity);
    ChatEvents events;
    WireEvents wire;
    size_t num_before = 0, num_events = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i == 1500) num_before = num_allocations;  // every buffer has met its largest step by now
      events.clear();
      wire.clear();
      ASSERT_TRUE(parser.push_tokens({&ids[i], 1}, {}, events).ok());
      encoder->encode(0, events, wire);
      num_events += wire.list.size();
    }
    // What holds the arguments of the open call doubles a few times; nothing grows with the number of tokens.
    EXPECT_LE(num_allocations - num_before, 4u) << codec.name;
    EXPECT_GT(num_events, ids.size() / 2);
  }
}

}  // namespace
}  // namespace deepinfer
