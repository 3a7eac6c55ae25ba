// SPDX-License-Identifier: MIT
// The prompt encoder and the stream parser are inverses: an assistant turn that was rendered into a prompt reads back
// as the same reasoning, text and calls, whatever it spells.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/philox.h"
#include "chat/prompt_encoder.h"
#include "chat/stream_parser.h"

namespace deepinfer {
namespace {

constexpr std::string_view kPieces[] = {"hello",
                                        " ",
                                        "\n",
                                        "\n\n",
                                        "a",
                                        "<",
                                        "</",
                                        "｜DSML｜",
                                        "<｜DSML｜ calls>",
                                        "</think>",
                                        "<think>",
                                        "</｜DSML｜ parameter>",
                                        "{\"a\": 1}",
                                        "\"",
                                        "\\",
                                        "\t",
                                        "\u2028",
                                        "é",
                                        "中文",
                                        "🦀",
                                        "👨‍👩‍👧",
                                        "<｜User｜>",
                                        "string=\"true\">",
                                        "END",
                                        "\r\n",
                                        "\x01",
                                        "12345",
                                        "."};

std::string random_text(Rng& rng, size_t num_pieces_max) {
  std::string out;
  for (size_t n = rng.below(num_pieces_max + 1); n > 0; --n) out += kPieces[rng.below(std::size(kPieces))];
  return out;
}

// The template does not keep newlines at the edges of reasoning and text.
std::string without_edge_newlines(std::string text) {
  while (!text.empty() && text.front() == '\n') text.erase(0, 1);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Json random_value(Rng& rng, int depth) {
  switch (rng.below(depth > 2 ? 5 : 7)) {
    case 0: return random_text(rng, 6);
    case 1: return static_cast<int64_t>(rng.next_u32()) - (int64_t{1} << 31);
    case 2: return static_cast<double>(rng.below(100000)) / 16;
    case 3: return rng.below(2) == 0;
    case 4: return nullptr;
    case 5: {
      Json::Array items;
      for (size_t n = rng.below(4); n > 0; --n) items.push_back(random_value(rng, depth + 1));
      return items;
    }
    default: {
      Json object = Json::Object{};
      for (size_t n = rng.below(4); n > 0; --n) object.set(random_text(rng, 3), random_value(rng, depth + 1));
      return object;
    }
  }
}

std::string random_key(Rng& rng) {
  std::string key = random_text(rng, 3);
  std::erase(key, '"');  // `"` in front of a space ends a name
  return key;
}

Message random_turn(Rng& rng, bool thinking) {
  Message turn;
  turn.role = Role::kAssistant;
  turn.content.text = without_edge_newlines(random_text(rng, 12));
  if (thinking) turn.reasoning = without_edge_newlines(random_text(rng, 12));
  std::vector<ToolCall> calls;
  for (size_t n = rng.below(4); n > 0; --n) {
    Json arguments = Json::Object{};
    for (size_t k = rng.below(4); k > 0; --k) arguments.set(random_key(rng), random_value(rng, 0));
    calls.push_back({"call_" + std::to_string(n), n % 2 == 0 ? "get_weather" : "f", to_json(arguments)});
  }
  if (!calls.empty()) turn.tool_calls = std::move(calls);
  return turn;
}

Conversation conversation_of(Message turn, bool thinking) {
  Conversation conversation;
  conversation.thinking = thinking;
  if (thinking) conversation.effort = ReasoningEffort::kHigh;
  ToolDefinition tool;
  tool.name = "f";
  conversation.tools.push_back(tool);
  Message user;
  user.content.text = "go";
  conversation.messages = {user, std::move(turn)};
  return conversation;
}

struct Turn {
  std::string text, reasoning;
  std::vector<ToolCall> calls;
  FinishReason reason = FinishReason::kEndOfStream;
};

Turn read(const OutputVocabulary& vocabulary, const std::vector<TokenId>& ids, bool thinking, bool compatible,
          size_t step) {
  StreamParserOptions options;
  options.parsing.parse_tool_calls = true;
  if (thinking) options.parsing.thinking_stage = ThinkingStage::kReasoningStart;
  options.recipe_compatible = compatible;
  StreamParser parser(vocabulary, options);
  ChatEvents events;
  for (size_t i = 0; i < ids.size(); i += step) {
    EXPECT_TRUE(parser.push_tokens(std::span(ids).subspan(i, std::min(step, ids.size() - i)), {}, events).ok());
  }
  parser.finish(BackendFinish::kStop, events);
  Turn turn;
  turn.reason = events.finish.reason;
  for (const ChatEvent& event : events.list) {
    const std::string_view text = events.text_of(event);
    if (event.kind == ChatEventKind::kText) turn.text += text;
    if (event.kind == ChatEventKind::kReasoning) turn.reasoning += text;
    if (event.kind == ChatEventKind::kToolCall) turn.calls.push_back({"", std::string(text), ""});
    if (event.kind == ChatEventKind::kToolArguments) turn.calls[event.call_idx].arguments += text;
  }
  return turn;
}

TEST(AnswerRoundTrip, ARenderedTurnReadsBackAsItself) {
  const auto tokenizer = Tokenizer::load(std::string(DEEPINFER_TESTDATA) + "/codec/tokenizer_v41.json.gz");
  ASSERT_TRUE(tokenizer.ok());
  const auto vocabulary = OutputVocabulary::create(tokenizer.value());
  ASSERT_TRUE(vocabulary.ok());
  Rng rng(42);
  for (int round = 0; round < 3000; ++round) {
    const bool thinking = rng.below(2) == 0, compatible = rng.below(2) == 0;
    const PromptVersion version = rng.below(2) == 0 ? PromptVersion::kV4 : PromptVersion::kV41;
    const Message turn = random_turn(rng, thinking);
    const Conversation conversation = conversation_of(turn, thinking);
    const auto controls = ControlTokens::find(*tokenizer.value(), version);
    ASSERT_TRUE(controls.ok());
    const auto encoded = encode_prompt(conversation, {.version = version}, controls.value());
    ASSERT_TRUE(encoded.ok()) << encoded.status().message();
    const auto ids = tokenizer.value()->encode(encoded.value().prompt);
    // The turn: after the assistant's header (and what it opens), up to the end of sentence.
    auto begin = std::find(ids.begin(), ids.end(), controls.value().id(Control::kAssistant)) + 2;
    const auto end = std::find(begin, ids.end(), controls.value().id(Control::kEos));
    ASSERT_NE(end, ids.end());
    const Turn got = read(vocabulary.value(), {begin, end}, thinking, compatible, 1 + rng.below(9));
    const std::string where = render(encoded.value().prompt).text;
    ASSERT_EQ(got.text, turn.content.text) << where;
    ASSERT_EQ(got.reasoning, turn.reasoning.value_or("")) << where;
    const auto calls = turn.tool_calls.value_or(std::vector<ToolCall>{});
    ASSERT_EQ(got.calls.size(), calls.size()) << where;
    for (size_t i = 0; i < calls.size(); ++i) {
      // V4 orders calls by id.
      const ToolCall& call = version == PromptVersion::kV4 ? calls[calls.size() - 1 - i] : calls[i];
      ASSERT_EQ(got.calls[i].name, call.name) << where;
      JsonLimits limits;
      limits.wide_integers = true;
      const auto arguments = parse_json(got.calls[i].arguments, limits);
      ASSERT_TRUE(arguments.ok()) << got.calls[i].arguments << "\n" << where;
      ASSERT_TRUE(arguments.value() == parse_json(call.arguments, limits).value()) << got.calls[i].arguments << "\n"
                                                                                   << call.arguments << "\n"
                                                                                   << where;
    }
    ASSERT_EQ(got.reason, calls.empty() ? FinishReason::kStop : FinishReason::kToolCalls);
  }
}

}  // namespace
}  // namespace deepinfer
