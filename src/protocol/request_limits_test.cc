// SPDX-License-Identifier: MIT
// Limits on requests, what goes beyond the original (decision 9), error bodies, and refusals that name their field.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "base/json.h"
#include "protocol/codec.h"

namespace deepinfer {
namespace {

struct Outcome {
  Refusal refusal;
  DecodedRequest request;
};

Outcome decode(const char* protocol, const std::string& body, const DecodeOptions& options = {}) {
  Outcome outcome;
  outcome.refusal = find_codec(protocol)->decode(body, options, outcome.request);
  return outcome;
}

// A Chat request with `members` added.
std::string chat(const std::string& members, const std::string& messages = R"([{"role":"user","content":"json"}])") {
  return fmt::format(R"({{"model":"DeepSeek-V4.1-Flash","messages":{}{}{}}})", messages, members.empty() ? "" : ",",
                     members);
}

void expect_refused(const Outcome& outcome, const std::string& param) {
  ASSERT_TRUE(outcome.refusal);
  EXPECT_EQ(outcome.refusal->param, param) << outcome.refusal->message;
  EXPECT_FALSE(outcome.refusal->message.empty());
}

DecodeOptions limited(void (*set)(RequestLimits&)) {
  DecodeOptions options;
  set(options.limits);
  return options;
}

const char* kTool = R"({"type":"function","function":{"name":"f"}})";
const char* kImage =
    R"({"type":"image_url","image_url":{"url":"data:image/png;base64,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}})";

}  // namespace

TEST(RequestLimits, BodySize) {
  const auto options = limited([](RequestLimits& limits) { limits.body_bytes_max = 100; });
  const Outcome outcome = decode("chat", chat("\"user\":\"" + std::string(100, 'x') + "\""), options);
  ASSERT_TRUE(outcome.refusal);
  EXPECT_EQ(outcome.refusal->http_status, 413);
}

TEST(RequestLimits, NestingDepth) {
  const auto nested = [](int depth) { return chat("\"extra\":" + std::string(depth, '[') + std::string(depth, ']')); };
  EXPECT_FALSE(decode("chat", nested(126)).refusal);
  EXPECT_TRUE(decode("chat", nested(127)).refusal);
  EXPECT_TRUE(decode("chat", nested(100'000)).refusal);
}

TEST(RequestLimits, MessagesOfEveryProtocol) {
  const auto options = limited([](RequestLimits& limits) { limits.messages_max = 2; });
  const std::string list =
      R"([{"role":"user","content":"a"},{"role":"user","content":"a"},{"role":"user","content":"a"}])";
  expect_refused(decode("chat", chat("", list), options), "messages");
  expect_refused(decode("messages", chat("", list), options), "messages");
  expect_refused(decode("responses", R"({"model":"DeepSeek-V4.1-Flash","input":)" + list + "}", options), "input");
}

TEST(RequestLimits, ToolsAndSchemaSize) {
  const auto count = limited([](RequestLimits& limits) { limits.tools_max = 1; });
  expect_refused(decode("chat", chat(fmt::format(R"("tools":[{},{}])", kTool, kTool)), count), "tools");
  const auto size = limited([](RequestLimits& limits) { limits.tool_schema_bytes_max = 50; });
  const std::string schema = R"({"type":"object","description":")" + std::string(50, 'd') + "\"}";
  EXPECT_TRUE(
      decode("chat", chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + schema + "}}]"), size)
          .refusal);
  EXPECT_TRUE(
      decode("chat", chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + schema + "}}"), size)
          .refusal);
}

TEST(RequestLimits, ImageCountAndBytes) {
  const std::string two = fmt::format(R"([{{"role":"user","content":[{},{}]}}])", kImage, kImage);
  EXPECT_FALSE(decode("chat", chat("", two)).refusal);
  expect_refused(decode("chat", chat("", two), limited([](RequestLimits& limits) { limits.images_max = 1; })),
                 ".messages[0]");
  expect_refused(decode("chat", chat("", two), limited([](RequestLimits& limits) { limits.image_bytes_max = 10; })),
                 ".messages[0]");
  expect_refused(
      decode("chat", chat("", two), limited([](RequestLimits& limits) { limits.images_total_bytes_max = 60; })),
      ".messages[0]");
}

TEST(RequestShape, MismatchNamesThePath) {
  expect_refused(decode("chat", chat("", R"([{"role":"user","content":[{"type":"text","text":1}]}])")),
                 "messages[0].content[0].text");
  expect_refused(decode("chat", chat(R"("tools":[{"type":"function"}])")), "tools[0].function");
  expect_refused(decode("chat", chat(R"("max_tokens":-1)")), "max_tokens");
  expect_refused(decode("chat", chat(R"("thinking":{"type":"off"})")), "thinking.type");
  expect_refused(decode("responses", R"({"model":"m","input":[{"type":"function_call","call_id":"1","name":"f"}]})"),
                 "input[0].arguments");
  expect_refused(decode("messages", R"({"model":"m","messages":[{"role":"user","content":[{"type":"zz"}]}]})"),
                 "messages[0].content[0].type");
}

TEST(BeyondRecipe, ForcedCallsThinkAndRefuseOnlyUnderCompatibility) {
  const std::string body = chat(fmt::format(R"("tools":[{}],"tool_choice":"required")", kTool));
  const Outcome ours = decode("chat", body);
  ASSERT_FALSE(ours.refusal);
  EXPECT_EQ(ours.request.chat.conversation.tool_choice, ToolChoice::kRequired);
  EXPECT_FALSE(ours.request.chat.parsing.starts_in_tool_calls);  // the call comes after the reasoning
  EXPECT_EQ(ours.request.chat.inference.constraint->kind, OutputConstraint::Kind::kToolCallRequired);
  DecodeOptions recipe;
  recipe.recipe_compatible = true;
  expect_refused(decode("chat", body, recipe), "tool_choice");
}

TEST(BeyondRecipe, AnyForcesACallInMessages) {
  const std::string body =
      R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"a"}],"thinking":{"type":"disabled"},)"
      R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}})";
  EXPECT_EQ(decode("messages", body).request.chat.conversation.tool_choice, ToolChoice::kRequired);
  DecodeOptions recipe;
  recipe.recipe_compatible = true;
  EXPECT_EQ(decode("messages", body, recipe).request.chat.conversation.tool_choice, ToolChoice::kAuto);
}

TEST(BeyondRecipe, SamplingFieldsActAsAsked) {
  const std::string body = chat(
      R"("n":3,"temperature":0.25,"top_p":0.5,"presence_penalty":1,"frequency_penalty":-1,"top_k":40,"min_p":0.1,"min_tokens":5,)"
      R"("ignore_eos":true,"stop_token_ids":[7],"logit_bias":{"12":-3.5},"repetition_penalty":1.1,"max_completion_tokens":9,)"
      R"("bad_words":["no","way"],"logprobs_mode":"processed_logprobs")");
  const Outcome ours = decode("chat", body);
  ASSERT_FALSE(ours.refusal) << ours.refusal->message;
  const InferenceOptions& inference = ours.request.chat.inference;
  EXPECT_EQ(inference.n, 3u);
  EXPECT_EQ(inference.temperature, 0.25f);
  EXPECT_EQ(inference.top_p, 0.5f);
  EXPECT_EQ(inference.presence_penalty, 1.0f);
  EXPECT_EQ(inference.frequency_penalty, -1.0f);
  EXPECT_EQ(inference.top_k, 40u);
  EXPECT_EQ(inference.min_tokens, 5u);
  EXPECT_TRUE(inference.ignore_eos);
  EXPECT_EQ(inference.stop_token_ids, std::vector<int32_t>{7});
  ASSERT_EQ(inference.logit_bias.size(), 1u);
  EXPECT_EQ(inference.logit_bias[0], (std::pair<int32_t, float>(12, -3.5f)));
  EXPECT_EQ(inference.max_tokens, 9u);
  EXPECT_EQ(inference.bad_words, (std::vector<std::string>{"no", "way"}));
  EXPECT_TRUE(inference.processed_logprobs);
  DecodeOptions recipe;
  recipe.recipe_compatible = true;
  expect_refused(decode("chat", body, recipe), "n");
}

TEST(BeyondRecipe, OutOfRangeIsRefusedByName) {
  for (const auto& [members, param] :
       {std::pair(R"("n":0)", "n"), std::pair(R"("n":17)", "n"), std::pair(R"("min_p":1.5)", "min_p"),
        std::pair(R"("repetition_penalty":0)", "repetition_penalty"),
        std::pair(R"("logit_bias":{"x":1})", "logit_bias.x"), std::pair(R"("logit_bias":{"1":101})", "logit_bias.1"),
        std::pair(R"("bad_words":[""])", "bad_words"), std::pair(R"("reasoning_effort":0)", "reasoning_effort")})
    expect_refused(decode("chat", chat(members)), param);
}

TEST(BeyondRecipe, EffortAsANumber) {
  const Outcome ours = decode("chat", chat(R"("reasoning_effort":40)"));
  ASSERT_FALSE(ours.refusal);
  EXPECT_EQ(ours.request.chat.conversation.effort_percent, 40);
  DecodeOptions recipe;
  recipe.recipe_compatible = true;
  expect_refused(decode("chat", chat(R"("reasoning_effort":40)"), recipe), "reasoning_effort");
}

TEST(BeyondRecipe, FormsHaveTheNamesOfSGLangAndLlamaCppToo) {
  using Kind = OutputConstraint::Kind;
  const auto constraint = [](const std::string& members) {
    return decode("chat", chat(members)).request.chat.inference.constraint;
  };
  for (const auto& [members, kind, source] :
       {std::tuple(R"("json_schema":{"type":"null"})", Kind::kJson, R"({"type":"null"})"),
        std::tuple(R"("json_schema":"{\"type\":\"null\"}")", Kind::kJson, R"({"type":"null"})"),
        std::tuple(R"("regex":"[0-9]")", Kind::kRegex, "[0-9]"),
        std::tuple(R"("ebnf":"root ::= \"a\"")", Kind::kEbnf, R"(root ::= "a")"),
        std::tuple(R"("grammar":"root ::= \"a\"")", Kind::kEbnf, R"(root ::= "a")")}) {
    ASSERT_TRUE(constraint(members)) << members;
    EXPECT_EQ(constraint(members)->kind, kind) << members;
    EXPECT_EQ(constraint(members)->schema, source) << members;
  }
  EXPECT_FALSE(constraint(R"("grammar":"")"));
  expect_refused(decode("chat", chat(R"("regex":"a","guided_regex":"a")")), "regex");
  expect_refused(decode("chat", chat(R"("ebnf":5)")), "ebnf");
}

TEST(BeyondRecipe, TopKSaysAllAsVllmsClientsDo) {
  for (const auto& [value, effect] : {std::pair("-1", 0u), std::pair("0", 0u), std::pair("40", 40u)})
    EXPECT_EQ(decode("chat", chat(fmt::format(R"("top_k":{})", value))).request.chat.inference.top_k, effect);
  for (const char* value : {"-2", "2147483648", "1e30"})
    expect_refused(decode("chat", chat(fmt::format(R"("top_k":{})", value))), "top_k");
}

TEST(BeyondRecipe, TemplateArgumentsSayWhetherToThink) {
  const auto thinks = [](const std::string& members) {
    return decode("chat", chat(members)).request.chat.conversation;
  };
  for (const char* name : {"thinking", "enable_thinking"}) {
    EXPECT_FALSE(thinks(fmt::format(R"("chat_template_kwargs":{{"{}":false}})", name)).thinking);
    EXPECT_TRUE(thinks(fmt::format(R"("chat_template_kwargs":{{"{}":true,"other":[]}})", name)).thinking);
  }
  EXPECT_EQ(thinks(R"("chat_template_kwargs":{"thinking":true,"reasoning_effort":"max"})").effort,
            ReasoningEffort::kMax);
  EXPECT_TRUE(thinks(R"("thinking":{"type":"enabled"},"chat_template_kwargs":{"thinking":false})").thinking);
  EXPECT_EQ(thinks(R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"max"})").effort,
            ReasoningEffort::kLow);
  expect_refused(decode("chat", chat(R"("chat_template_kwargs":{"thinking":"no"})")), "chat_template_kwargs.thinking");
}

TEST(BeyondRecipe, ADeveloperSpeaksAsTheSystem) {
  const std::string rest = R"(","content":"Be brief."},{"role":"user","content":"Hi"}])";
  const Outcome ours = decode("chat", chat("", R"([{"role":"developer)" + rest));
  ASSERT_FALSE(ours.refusal) << ours.refusal->message;
  EXPECT_EQ(ours.request.chat.conversation.messages.at(0).role, Role::kSystem);
  EXPECT_EQ(ours.request.chat.conversation.messages.at(0).content.text, "Be brief.");
  DecodeOptions recipe;
  recipe.recipe_compatible = true;
  expect_refused(decode("chat", chat("", R"([{"role":"developer)" + rest), recipe), "messages[0].role");
}

TEST(BeyondRecipe, OutputsMayAnswerCallsOfAnEarlierResponse) {
  const std::string body =
      R"({"model":"DeepSeek-V4.1-Flash","previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"c","output":"r"}]})";
  const Outcome ours = decode("responses", body);
  ASSERT_FALSE(ours.refusal);
  EXPECT_EQ(ours.request.chat.previous_response_id, "resp_1");
  ASSERT_EQ(ours.request.chat.conversation.messages.size(), 1u);
  EXPECT_EQ(ours.request.chat.conversation.messages[0].tool_call_id, "c");
  DecodeOptions recipe;
  recipe.recipe_compatible = true;
  expect_refused(decode("responses", body, recipe), "input[0].call_id");
}

TEST(BeyondRecipe, ResponsesAreStoredUnlessAskedNotTo) {
  const auto stores = [](const std::string& members, const DecodeOptions& options = {}) {
    const Outcome outcome =
        decode("responses", R"({"model":"DeepSeek-V4.1-Flash","input":"a")" + members + "}", options);
    EXPECT_FALSE(outcome.refusal);
    return outcome.request.response.stores;
  };
  EXPECT_TRUE(stores(""));
  EXPECT_TRUE(stores(R"(,"store":null)"));
  EXPECT_TRUE(stores(R"(,"store":true)"));
  EXPECT_FALSE(stores(R"(,"store":false)"));
  DecodeOptions recipe;
  recipe.recipe_compatible = true;
  EXPECT_FALSE(stores(R"(,"store":true)", recipe));
  expect_refused(decode("responses", R"({"model":"m","input":"a","store":"yes"})"), "store");
}

TEST(BeyondRecipe, WhatOnlyItsMakersServersKeepIsRefused) {
  for (const char* name : {"conversation", "prompt"})
    expect_refused(
        decode("responses", fmt::format(R"({{"model":"DeepSeek-V4.1-Flash","input":"a","{}":{{"id":"x"}}}})", name)),
        name);
}

TEST(BeyondRecipe, QuickTasksBelongToV4) {
  const std::string messages = R"([{"role":"user","content":"a","task":"title"}])";
  expect_refused(decode("chat", chat("", messages)), "messages[0].task");
  const Outcome v4 = decode("chat", R"({"model":"DeepSeek-V4-Pro","messages":)" + messages + "}");
  ASSERT_FALSE(v4.refusal);
  EXPECT_EQ(v4.request.chat.conversation.messages[0].task, QuickTask::kTitle);
}

TEST(ErrorBody, EachProtocolReadsItsOwn) {
  RequestError error{400, "no", "messages[0]"};
  EXPECT_EQ(
      find_codec("chat")->error(error, false),
      R"({"error":{"message":"no","type":"invalid_request_error","param":"messages[0]","code":"invalid_request_error"}})");
  EXPECT_EQ(find_codec("messages")->error(error, true),
            R"({"error":{"message":"no","type":"invalid_request_error","param":null,"code":"invalid_request_error"}})");
  EXPECT_EQ(
      find_codec("messages")->error(error, false),
      R"({"type":"error","error":{"message":"no","type":"invalid_request_error","param":"messages[0]","code":"invalid_request_error"}})");
  error = {500, "broken", ""};
  EXPECT_EQ(find_codec("responses")->error(error, false),
            R"({"error":{"message":"broken","type":"internal_error","param":null,"code":"internal_error"}})");
  error.http_status = 503;
  EXPECT_NE(find_codec("messages")->error(error, false).find("overloaded_error"), std::string::npos);
}

TEST(Registry, FindsByNameAndPath) {
  EXPECT_EQ(codecs().size(), 3u);
  EXPECT_EQ(find_codec_by_path("/v1/messages"), find_codec("messages"));
  EXPECT_EQ(find_codec("x"), nullptr);
}

}  // namespace deepinfer
