// SPDX-License-Identifier: MIT
#include "protocol/tool_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "chat/json_spelling.h"
#include "chat/schema_check.h"
#include "chat/strict_schema.h"

namespace deepinfer {

namespace {

constexpr JsonSpelling kCompact{NumberSpelling::kPlain, false};

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

Refusal refuse_schema(std::string message, const std::string& param, bool exact) {
  RequestError error;
  error.message = std::move(message);
  error.param = param;
  error.exact = exact;
  return error;
}

Refusal check_schema_size(const Json& schema, const std::string& what, const RequestLimits& limits) {
  const size_t size = spelled_json(schema, kCompact).size();
  if (size <= limits.tool_schema_bytes_max) return {};
  return refuse(
      fmt::format("The schema of {} has {} bytes, at most {} are accepted", what, size, limits.tool_schema_bytes_max),
      what);
}

Refusal check_loose_parameters(const std::string& name, const Json& parameters) {
  const std::string start = fmt::format("Invalid schema for function '{}': ", name);
  if (const Status status = check_json_schema(parameters); !status.ok())
    return refuse_schema(start + status.message(), "tools", false);
  const Json* type = parameters.find("type");
  if (type && type->is_string() && type->as_string() == "object") return {};
  return refuse(fmt::format("{}schema must be a JSON Schema of 'type: \"object\"', got 'type: {}'.", start,
                            type ? spelled_json(*type, kCompact) : "null"),
                "tools");
}

Refusal settle_parameters(DeclaredTool& declared, const DecodeOptions& options) {
  ToolDefinition& tool = declared.tool;
  REFUSE_IF(check_schema_size(tool.parameters, fmt::format("tool '{}'", tool.name), options.limits));
  if (!tool.strict.value_or(false))
    return declared.has_parameters ? check_loose_parameters(tool.name, tool.parameters) : Refusal();
  Result<Json> closed = strict_tool_parameters(declared.has_parameters ? tool.parameters : Json());
  if (!closed.ok()) return refuse_schema(closed.status().message(), "tools", !is_schema_shape_error(closed.status()));
  tool.parameters = std::move(closed).value();
  return {};
}

std::string tool_list(const std::vector<ToolDefinition>& tools) {
  Json::Array list;
  for (const ToolDefinition& tool : tools) {
    Json function(Json::Object{{"name", tool.name},
                               {"description", tool.description ? Json(*tool.description) : Json()},
                               {"parameters", tool.parameters},
                               {"strict", tool.strict ? Json(*tool.strict) : Json()}});
    Json entry(Json::Object{{"type", "function"}, {"function", std::move(function)}});
    if (tool.defer_loading) entry.set("defer_loading", true);
    list.push_back(std::move(entry));
  }
  return spelled_json(list, kCompact);
}

Refusal check_strict_mix(const FormatWish& wish, const Conversation& conversation) {
  const auto is_strict = [](const ToolDefinition& tool) { return tool.strict.value_or(false); };
  const auto num_strict = std::count_if(conversation.tools.begin(), conversation.tools.end(), is_strict);
  if (num_strict == 0) return {};
  if (static_cast<size_t>(num_strict) < conversation.tools.size())
    return refuse("Cannot use strict tool with non-strict tool in the same request", "tools");
  return wish.excludes_strict_tools ? refuse("response_format should not be used with tools", "response_format")
                                    : Refusal();
}

OutputConstraint constraint_of_tools(const Conversation& conversation) {
  using Kind = OutputConstraint::Kind;
  return {conversation.tool_choice == ToolChoice::kRequired ? Kind::kToolCallRequired : Kind::kToolCall,
          tool_list(conversation.tools), "tools"};
}

std::optional<OutputConstraint> constraint_of_format(const Conversation& conversation, const Json& schema) {
  using Kind = OutputConstraint::Kind;
  switch (conversation.response_format.kind) {
    case ResponseFormat::Kind::kText: return std::nullopt;
    case ResponseFormat::Kind::kJsonObject: return OutputConstraint{Kind::kJson, ""};
    case ResponseFormat::Kind::kJsonSchema: return OutputConstraint{Kind::kJson, spelled_json(schema, kCompact)};
    case ResponseFormat::Kind::kRegex: return OutputConstraint{Kind::kRegex, conversation.response_format.regex};
  }
  return std::nullopt;
}

// Messages introduce only tools that remain, in their final form. One that has nothing else to say goes.
void settle_introduced(Conversation& conversation) {
  std::vector<Message>& messages = conversation.messages;
  const auto settle = [&](Message& message) {
    if (!message.tools) return false;
    std::vector<ToolDefinition> kept;
    for (const ToolDefinition& introduced : *message.tools)
      for (const ToolDefinition& tool : conversation.tools)
        if (tool.name == introduced.name) kept.push_back(tool);
    const bool is_empty = message.content.text.empty() && message.content.images.empty();
    if (kept.empty()) message.tools.reset();
    else message.tools = std::move(kept);
    return is_empty && !message.tools;
  };
  messages.erase(std::remove_if(messages.begin(), messages.end(), settle), messages.end());
}

}  // namespace

Refusal check_tool_name(const std::string& name, const std::string& path) {
  const std::string field = path + ".name";
  if (name.empty())
    return refuse(
        fmt::format(
            "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
            field),
        field);
  if (name.size() > 128)
    return refuse(fmt::format("Invalid '{}': string too long. Expected a string with maximum length 128, but got a "
                              "string with length {} instead.",
                              field, name.size()),
                  field);
  if (!std::all_of(name.begin(), name.end(), is_name_character))
    return refuse(fmt::format("Invalid '{}': string does not match pattern. Expected a string that matches the pattern "
                              "'^[a-zA-Z0-9_-]+$'.",
                              field),
                  field);
  return {};
}

Refusal settle_tools(std::vector<DeclaredTool> declared, const ToolWish& wish, const DecodeOptions& options,
                     Conversation& conversation) {
  conversation.tools.clear();
  conversation.tool_choice = wish.choice == ToolChoice::kNone ? ToolChoice::kNone : ToolChoice::kAuto;
  if (wish.choice == ToolChoice::kNone || declared.empty()) {
    settle_introduced(conversation);
    return {};
  }
  if (declared.size() > options.limits.tools_max)
    return refuse(
        fmt::format("tools: {} are declared, at most {} are accepted", declared.size(), options.limits.tools_max),
        "tools");
  std::unordered_set<std::string> names;
  for (DeclaredTool& each : declared) {
    if (!names.insert(each.tool.name).second) return refuse("Tool names must be unique.", "tools");
    REFUSE_IF(settle_parameters(each, options));
  }
  if (wish.name && !names.contains(*wish.name))
    return refuse(
        fmt::format("Invalid value for 'tool_call': no function named '{}' was specified in the 'tools' parameter.",
                    *wish.name),
        "tool_choice");
  const bool is_forced = wish.name || wish.choice == ToolChoice::kRequired;
  if (is_forced && conversation.thinking && options.recipe_compatible)
    return refuse("Thinking mode does not support this tool_choice", "tool_choice");
  if (is_forced) conversation.tool_choice = ToolChoice::kRequired;
  for (DeclaredTool& each : declared)
    if (!wish.name || each.tool.name == *wish.name) conversation.tools.push_back(std::move(each.tool));
  settle_introduced(conversation);
  return {};
}

Refusal settle_format(FormatWish wish, const DecodeOptions& options, ChatRequest& chat) {
  Conversation& conversation = chat.conversation;
  Json schema = wish.format.schema;
  if (wish.format.kind == ResponseFormat::Kind::kJsonSchema) {
    REFUSE_IF(check_schema_size(schema, "response_format", options.limits));
    if (wish.strict) {
      Result<Json> closed = strict_response_schema(schema);
      if (!closed.ok())
        return refuse_schema(closed.status().message(), "response_format", !is_schema_shape_error(closed.status()));
      schema = std::move(closed).value();
    } else if (const Status status = check_json_schema(schema); !status.ok()) {
      return refuse_schema("Invalid json schema: " + status.message(), "response_format", false);
    }
  }
  REFUSE_IF(check_strict_mix(wish, conversation));
  conversation.response_format = std::move(wish.format);
  chat.inference.constraint = constraint_of_format(conversation, schema);
  if (conversation.renders_tools()) {
    chat.inference.content_constraint = std::move(chat.inference.constraint);
    chat.inference.constraint = constraint_of_tools(conversation);
  }
  chat.parsing.parse_tool_calls = conversation.renders_tools();
  // A thinking answer calls its tool after the reasoning: the prompt cannot open the block for it.
  chat.parsing.starts_in_tool_calls =
      conversation.renders_tools() && conversation.tool_choice == ToolChoice::kRequired && !conversation.thinking;
  // A schema constrains the tokens themselves: there is no text around the JSON to look for.
  chat.parsing.parse_json_output = conversation.response_format.kind == ResponseFormat::Kind::kJsonObject;
  return {};
}

bool mentions_json(const std::vector<Message>& messages) {
  constexpr std::string_view kWord = "json";
  const auto matches = [](char a, char b) { return (a | 32) == b; };
  return std::any_of(messages.begin(), messages.end(), [&](const Message& message) {
    const std::string& text = message.content.text;
    return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(), matches) != text.end();
  });
}

}  // namespace deepinfer
