// SPDX-License-Identifier: MIT
// What the recorded streams do not show: failures in mid-stream, several choices, search calls, custom input.
#include "protocol/response_encoder.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "protocol/custom_tool_input.h"

namespace deepinfer {
namespace {

ResponseContext context_of(bool thinking) {
  ResponseContext context;
  context.stream = true;
  context.thinking = thinking;
  return context;
}

ResponseIdentity identity_of(uint32_t num_choices = 1) {
  ResponseIdentity identity;
  identity.id = "r1";
  identity.model = "m";
  identity.num_choices = num_choices;
  return identity;
}

ChatEvents one_event(ChatEventKind kind, std::string_view text, FinishReason reason = FinishReason::kStop) {
  ChatEvents events;
  if (kind == ChatEventKind::kToolCall) {
    events.add_call(0, text, "call_00_x");
  } else if (kind == ChatEventKind::kStart || kind == ChatEventKind::kFinish) {
    events.add(kind);
  } else {
    events.add_text(kind, 0, text);
  }
  events.finish.reason = reason;
  events.usage.num_prompt_tokens = 10;
  events.usage.num_output_tokens = 3;
  return events;
}

struct Written {
  std::string name;
  Json data;
};
Written last(const WireEvents& wire) {
  const WireEvent& event = wire.list.back();
  auto data = parse_json(wire.data_of(event));
  EXPECT_TRUE(data.ok()) << wire.data_of(event);
  return {event.name == nullptr ? "" : event.name, data.ok() ? data.value() : Json()};
}

TEST(ResponseEncoder, AFailureInMidStreamIsTheProtocolsOwnEvent) {
  RequestError error;
  error.http_status = 503;
  error.message = "the engine stopped";
  WireEvents wire;
  make_chat_completions_encoder(context_of(false), identity_of())->fail(error, wire);
  EXPECT_EQ(last(wire).data.find("error")->find("message")->as_string(), "the engine stopped");

  make_messages_encoder(context_of(false), identity_of())->fail(error, wire);
  EXPECT_EQ(last(wire).name, "error");
  EXPECT_EQ(last(wire).data.find("type")->as_string(), "error");
  EXPECT_EQ(last(wire).data.find("error")->find("type")->as_string(), "overloaded_error");

  const auto responses = make_responses_encoder(context_of(false), identity_of());
  responses->encode(0, one_event(ChatEventKind::kStart, ""), wire);
  responses->fail(error, wire);
  const Written failed = last(wire);
  EXPECT_EQ(failed.name, "response.failed");
  const Json* response = failed.data.find("response");
  EXPECT_EQ(response->find("status")->as_string(), "failed");
  EXPECT_EQ(response->find("error")->find("message")->as_string(), "the engine stopped");
  EXPECT_EQ(failed.data.find("sequence_number")->as_int(), 2);
}

TEST(ResponseEncoder, SeveralChoicesShareOneUsageOnTheLastFinish) {
  const auto encoder = make_chat_completions_encoder(context_of(false), identity_of(2));
  WireEvents wire;
  for (uint32_t choice = 0; choice < 2; ++choice) encoder->encode(choice, one_event(ChatEventKind::kStart, ""), wire);
  encoder->encode(1, one_event(ChatEventKind::kText, "b"), wire);
  EXPECT_EQ(last(wire).data.find("choices")->as_array()[0].find("index")->as_int(), 1);
  encoder->encode(1, one_event(ChatEventKind::kFinish, ""), wire);
  EXPECT_EQ(last(wire).data.find("usage"), nullptr);
  encoder->encode(0, one_event(ChatEventKind::kText, "a"), wire);
  encoder->encode(0, one_event(ChatEventKind::kFinish, "", FinishReason::kLength), wire);
  EXPECT_EQ(last(wire).data.find("usage")->find("completion_tokens")->as_int(), 6);
  EXPECT_EQ(last(wire).data.find("usage")->find("prompt_tokens")->as_int(), 10);
  std::string reply;
  encoder->append_final(reply);
  auto final_object = parse_json(reply);
  ASSERT_TRUE(final_object.ok()) << reply;
  const auto& choices = final_object->find("choices")->as_array();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].find("message")->find("content")->as_string(), "a");
  EXPECT_EQ(choices[0].find("finish_reason")->as_string(), "length");
  EXPECT_EQ(choices[1].find("message")->find("content")->as_string(), "b");
  EXPECT_EQ(encoder->terminator(), "[DONE]");
}

TEST(ResponseEncoder, EveryFinishReasonHasItsNameInEveryProtocol) {
  struct Row {
    FinishReason reason;
    const char *chat, *messages, *responses;
  };
  for (const Row& row : {Row{FinishReason::kStop, "stop", "end_turn", "completed"},
                         Row{FinishReason::kEndOfStream, "stop", "end_turn", "completed"},
                         Row{FinishReason::kStopSequence, "stop", "stop_sequence", "completed"},
                         Row{FinishReason::kToolCalls, "tool_calls", "tool_use", "completed"},
                         Row{FinishReason::kLength, "length", "max_tokens", "incomplete"},
                         Row{FinishReason::kContentFilter, "content_filter", "refusal", "incomplete"}}) {
    const ChatEvents finish = one_event(ChatEventKind::kFinish, "", row.reason);
    std::string replies;
    for (const Codec& codec : codecs()) {
      const auto encoder = codec.encode(context_of(false), identity_of());
      WireEvents wire;
      encoder->encode(0, one_event(ChatEventKind::kStart, ""), wire);
      encoder->encode(0, finish, wire);
      std::string reply;
      encoder->append_final(reply);
      const auto value = parse_json(reply);
      ASSERT_TRUE(value.ok()) << reply;
      replies += reply;
    }
    EXPECT_NE(replies.find(std::string("\"finish_reason\":\"") + row.chat + "\""), std::string::npos) << replies;
    EXPECT_NE(replies.find(std::string("\"stop_reason\":\"") + row.messages + "\""), std::string::npos) << replies;
    EXPECT_NE(replies.find(std::string("\"status\":\"") + row.responses + "\""), std::string::npos) << replies;
  }
}

TEST(ResponseEncoder, SearchCallsCarryTheirArgumentsAsAValue) {
  ResponseContext context = context_of(false);
  context.client_tool_search = true;
  const auto encoder = make_responses_encoder(context, identity_of());
  WireEvents wire;
  encoder->encode(0, one_event(ChatEventKind::kStart, ""), wire);
  encoder->encode(0, one_event(ChatEventKind::kToolCall, "tool_search"), wire);
  encoder->encode(0, one_event(ChatEventKind::kToolArguments, "{\"q\": 1}"), wire);
  encoder->encode(0, one_event(ChatEventKind::kFinish, "", FinishReason::kToolCalls), wire);
  const Written completed = last(wire);
  const Json& item = completed.data.find("response")->find("output")->as_array()[0];
  EXPECT_EQ(item.find("type")->as_string(), "tool_search_call");
  EXPECT_EQ(item.find("arguments")->find("q")->as_int(), 1);
}

std::string unescaped(std::string_view arguments, size_t step) {
  CustomToolInput input;
  input.begin();
  std::string out;
  for (size_t i = 0; i < arguments.size(); i += step) input.push(arguments.substr(i, step), out);
  input.finish(out);
  return out;
}

TEST(CustomToolInput, UnescapesTheStringForEveryCut) {
  const struct {
    std::string_view arguments, input;
  } rows[] = {
      {R"({"input": "a\nb"})", "a\nb"},
      {R"( { "input" : "x\u00e9\ud83e\udd80\"\\\/" } tail)", "xé🦀\"\\/"},
      {R"({"input": "bad \q \u12 \ud83e! end)", R"(bad \q \u12 \ud83e! end)"},
      {R"({"input": "cut \)", R"(cut \)"},
      {R"({"patch": "y"})", R"({"patch": "y"})"},
      {R"({"inp)", R"({"inp)"},
      {"", ""},
  };
  for (const auto& row : rows) {
    for (size_t step = 1; step <= row.arguments.size() + 1; ++step) {
      EXPECT_EQ(unescaped(row.arguments, step), row.input) << row.arguments << " by " << step;
    }
  }
}

}  // namespace
}  // namespace deepinfer
