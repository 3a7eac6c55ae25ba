// SPDX-License-Identifier: MIT
// Appends text and control tokens to a Prompt. What is written with text() can never become a control token, whatever
// it spells (chat.md 6). Asking for a control token that the tokenizer lacks is remembered and reported at the end.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chat/chat_request.h"
#include "chat/control_tokens.h"
#include "tokenizer/prompt.h"

namespace deepinfer {

class PromptWriter {
 public:
  explicit PromptWriter(const ControlTokens& tokens) : tokens_(tokens) {}

  void text(std::string_view plain) { prompt_.add_text(plain); }
  void control(Control control);
  // Text with its image placeholders; remembers pointers to the images.
  void content(const MessageContent& content);
  // What the model wrote earlier: the spellings of grounding tokens are those tokens again, the rest is plain.
  void model_text(std::string_view text);

  std::vector<const ImageSource*> take_images() { return std::move(images_); }
  // not_found when a control token was missing.
  Result<Prompt> finish();

 private:
  const ControlTokens& tokens_;
  Prompt prompt_;
  std::vector<const ImageSource*> images_;
  Status status_;
};

}  // namespace deepinfer
