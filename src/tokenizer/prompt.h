// SPDX-License-Identifier: MIT
// What the model is to read, before it is token ids: control tokens and plain text in order. Made by chat/, read here.
// Plain text can never become a control id, whatever it spells: only a control piece carries one.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace deepinfer {

struct Prompt {
  struct Piece {
    bool is_control = false;
    TokenId id = -1;   // control pieces only
    std::string text;  // plain text; for a control piece its spelling, which is shown to people and never encoded
  };
  std::vector<Piece> pieces;

  void add_control(TokenId id, std::string_view spelling) { pieces.push_back({true, id, std::string(spelling)}); }
  // Neighbouring plain pieces are one run for the pre-tokenizer, however they were cut, so they are joined at once.
  void add_text(std::string_view text) {
    if (text.empty()) return;
    if (!pieces.empty() && !pieces.back().is_control) {
      pieces.back().text += text;
    } else {
      pieces.push_back({false, -1, std::string(text)});
    }
  }
};

}  // namespace deepinfer
