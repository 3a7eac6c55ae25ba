// SPDX-License-Identifier: MIT
// How many tokens an answer may have. Source: chat.md 3.6, decision 11.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "chat/chat_request.h"

namespace deepinfer {

inline constexpr uint32_t kDefaultTokens = 8'192;  // not thinking
inline constexpr uint32_t kDefaultThinkingTokens = 65'536;
inline constexpr uint32_t kDefaultMaxEffortTokens = 131'072;

// `prompt_tokens` counts every image at its token count. Errors: invalid_argument when prompt and requested tokens
// exceed the context; the message is what the client reads.
Result<uint32_t> resolve_max_tokens(const ChatRequest& request, uint64_t prompt_tokens, uint64_t context_limit);

}  // namespace deepinfer
