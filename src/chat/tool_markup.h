// SPDX-License-Identifier: MIT
// The DSML markup of tools: the explanation at the head of a prompt, the schema lines, and the calls of earlier turns.
// Tags are `<` + the DSML control token + name + `>`; names, keys, values and schemas are plain text, never escaped.
// Source: chat.md 2.5 and 2.6.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_request.h"
#include "chat/json_spelling.h"
#include "chat/prompt_writer.h"

namespace deepinfer {

// What differs between the template versions. Names carry the leading space of V4.1.
struct ToolMarkup {
  std::string_view block;      // "tool_calls", " calls"
  std::string_view call;       // "invoke", " invoke"
  std::string_view parameter;  // "parameter", " parameter"
  JsonSpelling json;
  bool blank_line_without_arguments = false;
};

const ToolMarkup& tool_markup(PromptVersion version);

// "## Tools ... ### Available Tool Schemas ...", one final newline; deferred tools are left out.
void write_tools_text(PromptWriter& out, const std::vector<ToolDefinition>& tools, const ToolMarkup& markup);
// {"name": ..., "description": ..., "parameters": ...}
void append_tool_schema(std::string& out, const ToolDefinition& tool, const ToolMarkup& markup);
// "\n\n<｜DSML｜ calls>\n...</｜DSML｜ calls>".
void write_tool_calls(PromptWriter& out, const std::vector<ToolCall>& calls, const ToolMarkup& markup);
// "\n\n<｜DSML｜ calls>\n": the answer must begin inside the block.
void write_block_start(PromptWriter& out, const ToolMarkup& markup);

}  // namespace deepinfer
