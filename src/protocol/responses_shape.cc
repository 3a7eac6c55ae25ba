// SPDX-License-Identifier: MIT
// The form of a Responses request. Source: chat.md 3.3.
#include <cstdint>

#include "protocol/responses_decode.h"
#include "protocol/thinking_rule.h"

namespace deepinfer {

namespace {

constexpr bool kRequired = true;
using Fields = std::vector<Shape::Field>;

// Outputs of calls hold no output_text.
Shape content(bool is_output) {
  const Fields text = {{"text", Shape::text(), kRequired}};
  const Fields image = {{"image_url", Shape::text()},
                        {"detail", Shape::word({"low", "high", "original", "auto"})},
                        {"file_id", Shape::text()}};
  std::vector<Shape::Variant> variants = {{"input_text", text}, {"input_image", image}, {"input_file", {}}};
  if (!is_output) variants.push_back({"output_text", text});
  return Shape::either(Shape::text(), Shape::list(Shape::tagged("type", std::move(variants))));
}

Shape tools() {
  const Fields function = {{"name", Shape::text(), kRequired},
                           {"description", Shape::text()},
                           {"parameters", Shape::any()},
                           {"strict", Shape::boolean()}};
  const Shape inner = Shape::tagged("type", {{"function", function}, {"custom", {{"name", Shape::text(), kRequired}}}});
  const Fields web_search = {{"search_context_size", Shape::any()}, {"user_location", Shape::any()}};
  return Shape::list(Shape::tagged(
      "type",
      {{"function", function},
       {"namespace",
        {{"name", Shape::text(), kRequired}, {"description", Shape::text()}, {"tools", Shape::list(inner), kRequired}}},
       {"custom", {{"name", Shape::text(), kRequired}}},
       {"tool_search",
        {{"execution", Shape::word({"client", "server"})},
         {"description", Shape::text()},
         {"parameters", Shape::any()}}},
       {"web_search", web_search},
       {"web_search_2025_08_26", web_search}},
      "", true));
}

Shape item() {
  const Shape id = Shape::text(), execution = Shape::word({"client", "server"});
  const Shape reasoning = Shape::record({{"text", Shape::text(), kRequired}});
  return Shape::tagged(
      "type",
      {{"message",
        {{"role", Shape::word({"user", "assistant", "system", "developer"}), kRequired},
         {"content", content(false), kRequired}}},
       {"function_call",
        {{"call_id", id, kRequired},
         {"name", Shape::text(), kRequired},
         {"arguments", Shape::text(), kRequired},
         {"namespace", Shape::text()}}},
       {"function_call_output", {{"call_id", id}, {"output", content(true), kRequired}}},
       {"reasoning", {{"content", Shape::list(reasoning)}, {"encrypted_content", Shape::text()}}},
       {"custom_tool_call",
        {{"call_id", id, kRequired}, {"name", Shape::text(), kRequired}, {"input", Shape::text(), kRequired}}},
       {"custom_tool_call_output", {{"call_id", id, kRequired}, {"output", content(true)}}},
       {"tool_search_call",
        {{"call_id", id, kRequired}, {"execution", execution}, {"arguments", Shape::map(Shape::any()), kRequired}}},
       {"tool_search_output", {{"call_id", id, kRequired}, {"execution", execution}, {"tools", tools(), kRequired}}},
       {"web_search_call", {}}},
      "message", true);
}

Shape tool_choice() {
  const Fields name = {{"name", Shape::text(), kRequired}};
  return Shape::either(
      Shape::word({"none", "auto", "required"}),
      Shape::tagged("type", {{"function", name}, {"custom", name}, {"web_search", {}}, {"web_search_2025_08_26", {}}}));
}

Shape text_format() {
  return Shape::tagged("type", {{"text", {}},
                                {"json_schema",
                                 {{"name", Shape::text(), kRequired},
                                  {"schema", Shape::any(), kRequired},
                                  {"description", Shape::text()},
                                  {"strict", Shape::boolean()}}},
                                {"json_object", {}}});
}

Shape request(bool recipe_compatible) {
  const Shape summary = Shape::word({"auto", "concise", "detailed"}), effort = Shape::word(effort_words());
  Fields fields = {
      {"model", Shape::text(), kRequired},
      {"input", Shape::either(Shape::text(), Shape::list(item()))},
      {"instructions", Shape::text()},
      {"max_output_tokens", Shape::unsigned_up_to(UINT32_MAX)},
      {"reasoning",
       Shape::record({{"effort", recipe_compatible ? effort : Shape::either(effort, Shape::unsigned_up_to(100))},
                      {"summary", summary},
                      {"generate_summary", summary}})},
      {"stream", Shape::boolean()},
      {"temperature", Shape::number()},
      {"top_p", Shape::number()},
      {"top_logprobs", Shape::unsigned_up_to(UINT8_MAX)},
      {"text",
       Shape::record({{"format", text_format(), false, false}, {"verbosity", Shape::word({"low", "medium", "high"})}})},
      {"tool_choice", tool_choice()},
      {"tools", tools()},
      {"user", Shape::text()}};
  if (!recipe_compatible) {
    fields.push_back({"previous_response_id", Shape::text()});
    fields.push_back({"parallel_tool_calls", Shape::boolean()});
    fields.push_back({"store", Shape::boolean()});
    fields.push_back({"metadata", Shape::map(Shape::text())});
    for (const char* name : {"prompt_cache_key", "safety_identifier"}) fields.push_back({name, Shape::text()});
    for (const char* name : {"conversation", "prompt"}) fields.push_back({name, Shape::any()});  // refused by name
  }
  return Shape::record(std::move(fields));
}

}  // namespace

const Shape& responses_shape(bool recipe_compatible) {
  static const Shape kRecipe = request(true), kOurs = request(false);
  return recipe_compatible ? kRecipe : kOurs;
}

}  // namespace deepinfer
