// SPDX-License-Identifier: MIT
// Conversation -> Prompt, in the template the model was trained with. Pure function, any thread. Source: chat.md 2.4.
// Tokenizer::encode(prompt) then gives the ids; an image stays one placeholder id until the vision stage expands it.
#pragma once

#include <string>
#include <vector>

#include "base/range.h"
#include "base/status.h"
#include "chat/chat_request.h"
#include "chat/control_tokens.h"
#include "chat/effort_text.h"
#include "tokenizer/prompt.h"

namespace deepinfer {

struct PromptTemplate {
  PromptVersion version = PromptVersion::kV41;
  V4Effort v4_effort = V4Effort::k0731;
};

struct EncodedConversation {
  Prompt prompt;
  std::vector<const ImageSource*> images;  // of the placeholders, in prompt order; they point into the conversation
};

// Errors: not_found when the tokenizer lacks a control token that this conversation needs (image, reminder, task).
Result<EncodedConversation> encode_prompt(const Conversation& conversation, const PromptTemplate& form,
                                          const ControlTokens& tokens);

// The prompt as people read it, and the byte ranges of its control tokens.
struct RenderedPrompt {
  std::string text;
  std::vector<Range> control_spans;
};
RenderedPrompt render(const Prompt& prompt);

}  // namespace deepinfer
