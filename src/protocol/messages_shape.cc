// SPDX-License-Identifier: MIT
// The form of a Messages request. Source: chat.md 3.4.
#include <cstdint>

#include "protocol/messages_decode.h"
#include "protocol/thinking_rule.h"

namespace deepinfer {

namespace {

constexpr bool kRequired = true;
using Fields = std::vector<Shape::Field>;

Shape text_or(Shape block) { return Shape::either(Shape::text(), Shape::list(std::move(block))); }

Shape::Variant text_block() { return {"text", {{"text", Shape::text(), kRequired}}}; }

Shape::Variant image_block() {
  const Shape media = Shape::word({"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"});
  const Shape source =
      Shape::tagged("type", {{"base64", {{"media_type", media, kRequired}, {"data", Shape::text(), kRequired}}},
                             {"url", {{"url", Shape::text(), kRequired}}},
                             {"file", {{"file_id", Shape::text(), kRequired}}}});
  return {"image", {{"source", source, kRequired}}};
}

Shape::Variant document_block() {
  return {"document", {{"source", Shape::record({{"media_type", Shape::text()}}), kRequired}}};
}

Shape message() {
  const Shape inner = Shape::tagged(
      "type",
      {text_block(), image_block(), document_block(), {"tool_reference", {{"tool_name", Shape::text(), kRequired}}}});
  const Shape reference = Shape::tagged("type", {{"tool_reference", {{"name", Shape::text(), kRequired}}}});
  const Fields use = {
      {"id", Shape::text(), kRequired}, {"name", Shape::text(), kRequired}, {"input", Shape::any(), kRequired}};
  const Shape block = Shape::tagged(
      "type",
      {text_block(),
       image_block(),
       document_block(),
       {"tool_result",
        {{"tool_use_id", Shape::text(), kRequired}, {"content", text_or(inner)}, {"is_error", Shape::boolean()}}},
       {"thinking", {{"thinking", Shape::text(), kRequired}, {"signature", Shape::text()}}},
       {"tool_use", use},
       {"server_tool_use", use},
       {"web_search_tool_result", {{"tool_use_id", Shape::text(), kRequired}, {"content", Shape::any(), kRequired}}},
       {"tool_addition", {{"tool", reference, kRequired}}}});
  return Shape::record(
      {{"role", Shape::word({"user", "assistant", "system"}), kRequired}, {"content", text_or(block), kRequired}});
}

Shape tool_choice() {
  const Fields parallel = {{"disable_parallel_tool_use", Shape::boolean()}};
  Fields named = parallel;
  named.push_back({"name", Shape::text(), kRequired});
  return Shape::tagged("type", {{"auto", parallel}, {"any", parallel}, {"tool", named}, {"none", {}}});
}

Shape request(bool recipe_compatible) {
  const Shape effort = Shape::word(effort_words());
  // A server tool may lack a name; read_tools demands it of the others.
  Fields tool = {{"name", Shape::text(), false, false},
                 {"description", Shape::text()},
                 {"input_schema", Shape::any()},
                 {"type", Shape::text(), false, false},
                 {"defer_loading", Shape::boolean()}};
  Fields config = {{"effort", recipe_compatible ? effort : Shape::either(effort, Shape::unsigned_up_to(100))}};
  if (!recipe_compatible) {
    tool.push_back({"strict", Shape::boolean()});
    config.push_back({"format", Shape::tagged("type", {{"json_schema", {{"schema", Shape::any(), kRequired}}}})});
  }
  Fields fields = {{"model", Shape::text(), kRequired},
                   {"messages", Shape::list(message()), kRequired},
                   {"system", text_or(Shape::tagged("type", {text_block()}))},
                   {"max_tokens", Shape::unsigned_up_to(UINT32_MAX)},
                   {"temperature", Shape::number()},
                   {"top_p", Shape::number()},
                   {"stop_sequences", Shape::list(Shape::text())},
                   {"stream", Shape::boolean()},
                   {"tools", Shape::list(Shape::record(std::move(tool)))},
                   {"tool_choice", tool_choice()},
                   {"thinking", Shape::record({{"type", Shape::word({"adaptive", "enabled", "disabled"}), kRequired},
                                               {"budget_tokens", Shape::unsigned_up_to(UINT64_MAX)}})},
                   {"output_config", Shape::record(std::move(config))},
                   {"metadata", Shape::record({{"user_id", Shape::text()}})}};
  if (!recipe_compatible) fields.push_back({"top_k", Shape::unsigned_up_to(UINT32_MAX)});
  return Shape::record(std::move(fields));
}

}  // namespace

const Shape& messages_shape(bool recipe_compatible) {
  static const Shape kRecipe = request(true), kOurs = request(false);
  return recipe_compatible ? kRecipe : kOurs;
}

}  // namespace deepinfer
