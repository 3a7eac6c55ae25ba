// SPDX-License-Identifier: MIT
#include "protocol/thinking_rule.h"

#include <fmt/format.h>

#include <string_view>

#include "chat/call_id.h"

namespace deepinfer {

namespace {

ReasoningEffort level_of(std::string_view word) {
  if (word == "minimal" || word == "low") return ReasoningEffort::kLow;
  if (word == "xhigh") return ReasoningEffort::kXhigh;
  return word == "ultra" || word == "max" ? ReasoningEffort::kMax : ReasoningEffort::kHigh;
}

// The named level nearest to a number: 50, 75, 100.
ReasoningEffort level_of(int64_t percent) {
  if (percent < 63) return ReasoningEffort::kLow;
  return percent < 88 ? ReasoningEffort::kHigh : ReasoningEffort::kMax;
}

size_t after_last_user(const std::vector<Message>& messages) {
  for (size_t i = messages.size(); i > 0; --i)
    if (messages[i - 1].role == Role::kUser) return i;
  return 0;
}

bool was_empty_thinking(const std::optional<std::vector<ToolCall>>& calls) {
  if (!calls) return false;
  for (const ToolCall& call : *calls)
    if (has_empty_thinking_mark(call.id)) return true;
  return false;
}

}  // namespace

const std::vector<std::string>& effort_words() {
  static const std::vector<std::string> kWords = {"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"};
  return kWords;
}

void apply_thinking(const ThinkingWish& wish, const DecodeOptions& options, Conversation& conversation) {
  const Json* effort = wish.effort && !wish.effort->is_null() ? wish.effort : nullptr;
  const bool effort_is_none = effort && effort->is_string() && effort->as_string() == "none";
  conversation.thinking = wish.enabled.value_or(effort ? !effort_is_none : options.default_thinking);
  conversation.effort.reset();
  if (!conversation.thinking) return;
  conversation.effort = ReasoningEffort::kHigh;
  if (!effort) return;
  if (effort->is_string()) {
    conversation.effort = level_of(effort->as_string());
  } else {
    conversation.effort = level_of(effort->as_int());
    conversation.effort_percent = static_cast<int>(effort->as_int());
  }
}

Refusal settle_reasoning(const DecodeOptions& options, bool declares_tools, const char* field,
                         Conversation& conversation) {
  const size_t open_turn = after_last_user(conversation.messages);
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    Message& message = conversation.messages[i];
    if (message.role != Role::kAssistant) continue;
    if (!conversation.thinking) {
      message.reasoning.reset();
      continue;
    }
    if (message.reasoning) continue;
    const bool has_calls = message.tool_calls && !message.tool_calls->empty();
    const bool demanded =
        options.missing_reasoning == MissingReasoning::kReject && i >= open_turn && (has_calls || declares_tools);
    if (demanded && !was_empty_thinking(message.tool_calls))
      return refuse(fmt::format("The `{}` in the thinking mode must be passed back to the API.", field), field);
    message.reasoning = "";
  }
  return {};
}

}  // namespace deepinfer
