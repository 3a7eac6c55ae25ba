// SPDX-License-Identifier: MIT
#include "chat/tool_markup.h"

namespace deepinfer {

namespace {

void open_tag(PromptWriter& out, std::string_view name) {
  out.text("<");
  out.control(Control::kDsml);
  out.text(name);
}

void close_tag(PromptWriter& out, std::string_view name) {
  out.text("</");
  out.control(Control::kDsml);
  out.text(name);
  out.text(">");
}

void write_example_call(PromptWriter& out, std::string_view tool_name, bool with_parameter, const ToolMarkup& markup) {
  open_tag(out, markup.call);
  out.text(" name=\"");
  out.text(tool_name);
  out.text("\">\n");
  if (with_parameter) {
    open_tag(out, markup.parameter);
    out.text(" name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE");
    close_tag(out, markup.parameter);
    out.text("\n");
  }
  out.text("...\n");
  close_tag(out, markup.call);
  out.text("\n");
}

void write_thinking_rule(PromptWriter& out) {
  out.text("If thinking_mode is enabled (triggered by ");
  out.control(Control::kThinkStart);
  out.text("), you MUST output your complete reasoning inside ");
  out.control(Control::kThinkStart);
  out.text("...");
  out.control(Control::kThinkEnd);
  out.text(" BEFORE any tool calls or final response.\n\nOtherwise, output directly after ");
  out.control(Control::kThinkEnd);
  out.text(" with tool calls or final response.\n\n");
}

void write_parameter(PromptWriter& out, std::string_view key, const Json& value, const ToolMarkup& markup) {
  open_tag(out, markup.parameter);
  out.text(" name=\"");
  out.text(key);
  out.text(value.is_string() ? "\" string=\"true\">" : "\" string=\"false\">");
  out.text(value.is_string() ? value.as_string() : spelled_json(value, markup.json));
  close_tag(out, markup.parameter);
  out.text("\n");
}

void write_call(PromptWriter& out, const ToolCall& call, const ToolMarkup& markup) {
  open_tag(out, markup.call);
  out.text(" name=\"");
  out.text(call.name);
  out.text("\">\n");
  const Result<Json> parsed = parse_spelled_json(call.arguments);
  if (parsed.ok() && parsed.value().is_object()) {
    for (const auto& [key, value] : parsed.value().as_object()) write_parameter(out, key, value, markup);
    if (parsed.value().as_object().empty() && markup.blank_line_without_arguments) out.text("\n");
  } else {
    write_parameter(out, "arguments", call.arguments, markup);
  }
  close_tag(out, markup.call);
}

}  // namespace

const ToolMarkup& tool_markup(PromptVersion version) {
  static constexpr ToolMarkup kV4{"tool_calls", "invoke", "parameter", {NumberSpelling::kPlain, true}, false};
  static constexpr ToolMarkup kV41{" calls", " invoke", " parameter", {NumberSpelling::kPython, true}, true};
  return version == PromptVersion::kV4 ? kV4 : kV41;
}

void append_tool_schema(std::string& out, const ToolDefinition& tool, const ToolMarkup& markup) {
  out += "{\"name\": ";
  append_json_string(out, tool.name);
  out += ", \"description\": ";
  append_json_string(out, tool.description.value_or(""));
  out += ", \"parameters\": ";
  append_spelled_json(out, tool.parameters, markup.json);
  out += "}";
}

void write_tools_text(PromptWriter& out, const std::vector<ToolDefinition>& tools, const ToolMarkup& markup) {
  out.text(
      "## Tools\n\nYou have access to a set of tools to help answer the user's question. "
      "You can invoke tools by writing a \"");
  open_tag(out, markup.block);
  out.text(">\" block like the following:\n\n");
  open_tag(out, markup.block);
  out.text(">\n");
  write_example_call(out, "$TOOL_NAME", true, markup);
  write_example_call(out, "$TOOL_NAME2", false, markup);
  close_tag(out, markup.block);
  out.text(
      "\n\nString parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, "
      "booleans, "
      "arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n");
  write_thinking_rule(out);
  out.text("### Available Tool Schemas\n\n");
  std::string schemas;
  for (const ToolDefinition& tool : tools) {
    if (tool.defer_loading) continue;
    if (!schemas.empty()) schemas += '\n';
    append_tool_schema(schemas, tool, markup);
  }
  out.text(schemas);
  out.text("\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n");
}

void write_tool_calls(PromptWriter& out, const std::vector<ToolCall>& calls, const ToolMarkup& markup) {
  write_block_start(out, markup);
  for (const ToolCall& call : calls) {
    write_call(out, call, markup);
    out.text("\n");
  }
  close_tag(out, markup.block);
}

void write_block_start(PromptWriter& out, const ToolMarkup& markup) {
  out.text("\n\n");
  open_tag(out, markup.block);
  out.text(">\n");
}

}  // namespace deepinfer
