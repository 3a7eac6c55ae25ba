// SPDX-License-Identifier: MIT
#include "chat/token_budget.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {

Result<uint32_t> resolve_max_tokens(const ChatRequest& request, uint64_t prompt_tokens, uint64_t context_limit) {
  const uint64_t requested = request.inference.max_tokens.value_or(0);
  if (prompt_tokens > context_limit || requested > context_limit - prompt_tokens)
    return invalid_argument(
        fmt::format("This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the "
                    "messages, {} in the "
                    "completion). Please reduce the length of the messages or completion.",
                    context_limit, prompt_tokens + requested, prompt_tokens, requested));
  const Conversation& conversation = request.conversation;
  const uint64_t otherwise = !conversation.thinking                         ? kDefaultTokens
                             : conversation.effort == ReasoningEffort::kMax ? kDefaultMaxEffortTokens
                                                                            : kDefaultThinkingTokens;
  const uint64_t wanted = request.inference.max_tokens ? requested : otherwise;
  return static_cast<uint32_t>(std::max<uint64_t>(1, std::min(wanted, context_limit - prompt_tokens)));
}

}  // namespace deepinfer
