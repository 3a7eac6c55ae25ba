// SPDX-License-Identifier: MIT
#include "chat/prompt_encoder.h"

#include "chat/prompt_versions.h"

namespace deepinfer {

std::string schema_format_text(const std::string& schema) {
  return "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n" + schema;
}

bool renders_format(const ResponseFormat& format) {
  return format.kind == ResponseFormat::Kind::kJsonObject || format.kind == ResponseFormat::Kind::kJsonSchema;
}

bool opens_block(const Conversation& conversation) {
  return conversation.tool_choice == ToolChoice::kRequired && conversation.renders_tools() && !conversation.thinking;
}

Result<EncodedConversation> encode_prompt(const Conversation& conversation, const PromptTemplate& form,
                                          const ControlTokens& tokens) {
  PromptWriter out(tokens);
  if (form.version == PromptVersion::kV4) write_v4_prompt(conversation, form.v4_effort, out);
  else write_v41_prompt(conversation, out);
  EncodedConversation encoded;
  encoded.images = out.take_images();
  ASSIGN_OR_RETURN(encoded.prompt, out.finish());
  return encoded;
}

RenderedPrompt render(const Prompt& prompt) {
  RenderedPrompt rendered;
  for (const Prompt::Piece& piece : prompt.pieces) {
    const int64_t begin = static_cast<int64_t>(rendered.text.size());
    rendered.text += piece.text;
    if (piece.is_control) rendered.control_spans.push_back({begin, static_cast<int64_t>(rendered.text.size())});
  }
  return rendered;
}

}  // namespace deepinfer
