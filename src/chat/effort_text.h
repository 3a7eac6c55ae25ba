// SPDX-License-Identifier: MIT
// The words at the head of a thinking prompt that say how hard to think. Source: chat.md 2.3.
#pragma once

#include <string>

#include "chat/chat_request.h"

namespace deepinfer {

// Two schemes exist for V4 checkpoints that no config file tells apart; 0731 is the one of the released packages.
enum class V4Effort { k0731, kOriginal };

// "" when not thinking. Ends in two newlines otherwise.
std::string effort_text(const Conversation& conversation, PromptVersion version, V4Effort v4_scheme = V4Effort::k0731);

}  // namespace deepinfer
