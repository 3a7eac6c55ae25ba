// SPDX-License-Identifier: MIT
// The two templates behind encode_prompt, and the texts they share.
#pragma once

#include <string>

#include "chat/effort_text.h"
#include "chat/prompt_writer.h"
#include "chat/tool_markup.h"

namespace deepinfer {

void write_v4_prompt(const Conversation& conversation, V4Effort effort, PromptWriter& out);
void write_v41_prompt(const Conversation& conversation, PromptWriter& out);

// "## Response Format: ..." with the schema; the reply must follow it. Source: chat.md 2.7.
std::string schema_format_text(const std::string& schema);
// True when the format is told in the prompt; a regex only constrains the output.
bool renders_format(const ResponseFormat& format);

// True when the prompt ends inside an opened call block. A thinking answer calls its tool after the reasoning, so the
// prompt cannot open the block for it.
bool opens_block(const Conversation& conversation);

}  // namespace deepinfer
