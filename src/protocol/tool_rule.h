// SPDX-License-Identifier: MIT
// Tool declarations, the tool choice, response formats and the constraint that follows from them: what all protocols
// share. Source: chat.md 3.1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "chat/chat_request.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"

namespace deepinfer {

// `path` of the object that holds the name: "tools[0].function".
Refusal check_tool_name(const std::string& name, const std::string& path);

struct DeclaredTool {
  ToolDefinition tool;
  bool has_parameters = false;  // given, hence checked; a missing Messages input_schema counts as a given null
};

struct ToolWish {
  ToolChoice choice = ToolChoice::kAuto;
  std::optional<std::string> name;  // only this tool, which must be called
};

// Checks the declarations in order and puts what remains after the choice into the conversation.
Refusal settle_tools(std::vector<DeclaredTool> declared, const ToolWish& wish, const DecodeOptions& options,
                     Conversation& conversation);

struct FormatWish {
  ResponseFormat format;
  bool strict = false;                 // the schema is brought into closed form for the constraint
  bool excludes_strict_tools = false;  // the format was named in a way that strict tools do not admit
};

// Checks format and strict tools together, sets the conversation's format, the constraint and the parsing of tools and
// JSON.
Refusal settle_format(FormatWish wish, const DecodeOptions& options, ChatRequest& chat);

// True when some text of the conversation contains "json" in any case.
bool mentions_json(const std::vector<Message>& messages);

}  // namespace deepinfer
