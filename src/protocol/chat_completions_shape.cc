// SPDX-License-Identifier: MIT
// The form of a Chat Completions request. Source: chat.md 3.2.
#include <cstdint>

#include "protocol/chat_completions_decode.h"
#include "protocol/structured_output.h"
#include "protocol/thinking_rule.h"

namespace deepinfer {

namespace {

constexpr bool kRequired = true;
using Field = Shape::Field;
using Fields = std::vector<Field>;

Shape content() {
  const Shape image_url =
      Shape::record({{"url", Shape::text(), kRequired}, {"detail", Shape::word({"low", "high", "original", "auto"})}});
  const Shape block = Shape::tagged(
      "type", {{"text", {{"text", Shape::text(), kRequired}}},
               {"image_url", {{"image_url", image_url, kRequired}}},
               {"file", {{"file_id", Shape::text()}, {"file_data", Shape::text()}, {"filename", Shape::text()}}}});
  return Shape::either(Shape::text(), Shape::list(block));
}

Shape tool_call() {
  const Shape function = Shape::record({{"name", Shape::text(), kRequired}, {"arguments", Shape::text(), kRequired}});
  return Shape::record({{"id", Shape::text(), kRequired},
                        {"type", Shape::word({"function"}), kRequired},
                        {"function", function, kRequired}});
}

Shape message(bool recipe_compatible) {
  Fields user = {{"content", content(), kRequired}, {"name", Shape::text()}};
  Fields assistant = {{"content", content()},
                      {"name", Shape::text()},
                      {"reasoning_content", Shape::text()},
                      {"tool_calls", Shape::list(tool_call())},
                      {"prefix", Shape::boolean()}};
  if (!recipe_compatible) {
    user.push_back({"task", Shape::word({"action", "query", "authority", "domain", "title", "read_url"})});
    assistant.push_back({"wo_eos", Shape::boolean()});
  }
  const Fields system = {{"content", content(), kRequired}, {"name", Shape::text()}};
  std::vector<Shape::Variant> roles = {
      {"system", system},
      {"user", user},
      {"assistant", assistant},
      {"tool", {{"content", content(), kRequired}, {"tool_call_id", Shape::text(), kRequired}}},
      {"latest_reminder", {{"content", Shape::text(), kRequired}}}};
  if (!recipe_compatible) roles.push_back({"developer", system});
  return Shape::tagged("role", std::move(roles));
}

Shape response_format() {
  const Shape schema =
      Shape::record({{"name", Shape::text()}, {"schema", Shape::any(), kRequired}, {"strict", Shape::boolean()}});
  return Shape::tagged("type", {{"text", {}},
                                {"json_object", {}},
                                {"json_schema", {{"json_schema", schema, kRequired}}},
                                {"regex", {{"regex", Shape::text(), kRequired}}}});
}

Shape tool() {
  const Shape function = Shape::record({{"name", Shape::text(), kRequired},
                                        {"description", Shape::text()},
                                        {"parameters", Shape::any()},
                                        {"strict", Shape::boolean()}});
  return Shape::tagged("type", {{"function", {{"function", function, kRequired}}}});
}

Shape tool_choice() {
  const Shape function = Shape::record({{"name", Shape::text(), kRequired}});
  return Shape::either(
      Shape::word({"none", "auto", "required"}),
      Shape::record({{"type", Shape::word({"function"}), kRequired}, {"function", function, kRequired}}));
}

Fields beyond_recipe() {
  const Shape u32 = Shape::unsigned_up_to(UINT32_MAX);
  Fields fields = {{"max_completion_tokens", u32},
                   {"top_k", Shape::signed_integer()},
                   {"min_p", Shape::number()},
                   {"repetition_penalty", Shape::number()},
                   {"logit_bias", Shape::map(Shape::number())},
                   {"min_tokens", u32},
                   {"ignore_eos", Shape::boolean()},
                   {"bad_words", Shape::list(Shape::text())},
                   {"logprobs_mode", Shape::word({"raw_logprobs", "processed_logprobs"})},
                   {"stop_token_ids", Shape::list(Shape::unsigned_up_to(INT32_MAX))},
                   {"chat_template_kwargs", Shape::record({{"thinking", Shape::boolean()},
                                                           {"enable_thinking", Shape::boolean()},
                                                           {"reasoning_effort", Shape::word(effort_words())}})}};
  for (Field& field : structured_output_fields()) fields.push_back(std::move(field));
  return fields;
}

Shape request(bool recipe_compatible) {
  const Shape u8 = Shape::unsigned_up_to(UINT8_MAX), u32 = Shape::unsigned_up_to(UINT32_MAX),
              u64 = Shape::unsigned_up_to(UINT64_MAX);
  const Shape effort = Shape::word(effort_words());
  Fields fields = {{"model", Shape::text(), kRequired},
                   {"messages", Shape::list(message(recipe_compatible)), kRequired},
                   {"max_tokens", u32},
                   {"temperature", Shape::number()},
                   {"top_p", Shape::number()},
                   {"frequency_penalty", Shape::number()},
                   {"presence_penalty", Shape::number()},
                   {"seed", u64},
                   {"n", u8},
                   {"stop", Shape::either(Shape::text(), Shape::list(Shape::text()))},
                   {"stream", Shape::boolean()},
                   {"stream_options", Shape::record({{"include_usage", Shape::boolean()}})},
                   {"response_format", response_format()},
                   {"tools", Shape::list(tool())},
                   {"tool_choice", tool_choice()},
                   {"parallel_tool_calls", Shape::boolean()},
                   {"reasoning_effort", recipe_compatible ? effort : Shape::either(effort, Shape::unsigned_up_to(100))},
                   {"thinking", Shape::record({{"type", Shape::word({"adaptive", "enabled", "disabled"}), kRequired},
                                               {"budget_tokens", u64}})},
                   {"logprobs", Shape::boolean()},
                   {"top_logprobs", u8}};
  if (!recipe_compatible)
    for (Field& field : beyond_recipe()) fields.push_back(std::move(field));
  return Shape::record(std::move(fields));
}

}  // namespace

const Shape& chat_completions_shape(bool recipe_compatible) {
  static const Shape kRecipe = request(true), kOurs = request(false);
  return recipe_compatible ? kRecipe : kOurs;
}

}  // namespace deepinfer
