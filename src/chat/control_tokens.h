// SPDX-License-Identifier: MIT
// The control tokens a prompt or an answer can hold, looked up by spelling in the loaded tokenizer (decision 8).
// Immutable. Source: chat.md 1.1.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "chat/chat_request.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

enum class Control {
  kBos,
  kEos,
  kSystem,
  kUser,
  kAssistant,
  kLatestReminder,
  kThinkStart,
  kThinkEnd,
  kDsml,
  kImage,
  kRef,
  kRefEnd,
  kBox,
  kBoxEnd,
  kPoint,
  kPointEnd,
  kPolygon,
  kPolygonEnd,  // grounding
  kAction,
  kQuery,
  kAuthority,
  kDomain,
  kTitle,
  kReadUrl,  // quick tasks
};
inline constexpr size_t kNumControls = static_cast<size_t>(Control::kReadUrl) + 1;

class ControlTokens {
 public:
  // Errors: not_found when one that every prompt of `version` needs is missing; the message names it.
  static Result<ControlTokens> find(const Tokenizer& tokenizer, PromptVersion version);

  TokenId id(Control control) const {
    return entries_[static_cast<size_t>(control)].id;
  }  // -1: this tokenizer lacks it
  std::string_view spelling(Control control) const { return entries_[static_cast<size_t>(control)].spelling; }
  bool is_grounding(TokenId id) const;

 private:
  struct Entry {
    TokenId id = -1;
    std::string spelling;
  };
  std::array<Entry, kNumControls> entries_;
};

// The spelling in the released tokenizer.
std::string_view default_spelling(Control control);

}  // namespace deepinfer
