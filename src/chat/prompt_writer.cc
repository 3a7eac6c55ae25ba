// SPDX-License-Identifier: MIT
#include "chat/prompt_writer.h"

#include <fmt/format.h>

#include <optional>

namespace deepinfer {

void PromptWriter::control(Control control) {
  const TokenId id = tokens_.id(control);
  if (id < 0 && status_.ok())
    status_ = not_found(
        fmt::format("the tokenizer has no control token {}, which this conversation needs", tokens_.spelling(control)));
  prompt_.add_control(id, tokens_.spelling(control));
}

void PromptWriter::content(const MessageContent& content) {
  const std::string_view text = content.text;
  size_t begin = 0;
  for (const size_t offset : content.image_offsets) {
    prompt_.add_text(text.substr(begin, offset - begin));
    control(Control::kImage);
    begin = offset;
  }
  prompt_.add_text(text.substr(begin));
  for (const ImageSource& image : content.images) images_.push_back(&image);
}

void PromptWriter::model_text(std::string_view text) {
  // Every grounding spelling starts with "<｜", which is rare in text: look for that first.
  static constexpr std::string_view kStart = "<｜";
  size_t plain = 0;
  for (size_t at = text.find(kStart); at != std::string_view::npos; at = text.find(kStart, at)) {
    std::optional<Control> found;
    for (int c = static_cast<int>(Control::kRef); c <= static_cast<int>(Control::kPolygonEnd); ++c)
      if (tokens_.id(Control(c)) >= 0 && text.substr(at).starts_with(tokens_.spelling(Control(c)))) found = Control(c);
    if (!found) {
      at += kStart.size();
      continue;
    }
    prompt_.add_text(text.substr(plain, at - plain));
    control(*found);
    plain = at += tokens_.spelling(*found).size();
  }
  prompt_.add_text(text.substr(plain));
}

Result<Prompt> PromptWriter::finish() {
  if (!status_.ok()) return status_;
  return std::move(prompt_);
}

}  // namespace deepinfer
