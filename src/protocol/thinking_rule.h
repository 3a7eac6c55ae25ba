// SPDX-License-Identifier: MIT
// Whether a request thinks, how hard, and what becomes of reasoning that its history lacks. Source: chat.md 3.1.
#pragma once

#include <optional>

#include "base/json.h"
#include "chat/chat_request.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"

namespace deepinfer {

struct ThinkingWish {
  std::optional<bool> enabled;   // `thinking.type`; wins over the effort
  const Json* effort = nullptr;  // a level's name, a number 1..100, or null; nullptr when absent
};

void apply_thinking(const ThinkingWish& wish, const DecodeOptions& options, Conversation& conversation);

// Fills, clears or demands the reasoning of earlier answers. `field` is what the protocol calls it, for the message.
Refusal settle_reasoning(const DecodeOptions& options, bool declares_tools, const char* field,
                         Conversation& conversation);

// Words of `effort`, in the order the protocols list them.
const std::vector<std::string>& effort_words();

}  // namespace deepinfer
