// SPDX-License-Identifier: MIT
#include "chat/chat_event.h"

namespace deepinfer {

const char* to_string(ChatEventKind kind) {
  switch (kind) {
    case ChatEventKind::kStart: return "start";
    case ChatEventKind::kReasoning: return "reasoning";
    case ChatEventKind::kText: return "text";
    case ChatEventKind::kToolCall: return "tool_call";
    case ChatEventKind::kToolArguments: return "tool_arguments";
    case ChatEventKind::kFinish: return "finish";
  }
  return "?";
}

void ChatEvents::clear() {
  list.clear();
  text.clear();
  logprobs.clear();
  top_logprobs.clear();
}

void ChatEvents::add(ChatEventKind kind) {
  ChatEvent event;
  event.kind = kind;
  event.text = {static_cast<int64_t>(text.size()), static_cast<int64_t>(text.size())};
  event.logprobs = {static_cast<int64_t>(logprobs.size()), static_cast<int64_t>(logprobs.size())};
  list.push_back(event);
}

void ChatEvents::add_text(ChatEventKind kind, uint32_t call_idx, std::string_view piece) {
  if (piece.empty()) return;
  if (list.empty() || list.back().kind != kind || list.back().call_idx != call_idx) {
    add(kind);
    list.back().call_idx = call_idx;
  }
  text += piece;
  list.back().text.end = static_cast<int64_t>(text.size());
}

void ChatEvents::add_call(uint32_t call_idx, std::string_view name, std::string_view call_id) {
  add(ChatEventKind::kToolCall);
  ChatEvent& event = list.back();
  event.call_idx = call_idx;
  text += name;
  event.text.end = static_cast<int64_t>(text.size());
  event.call_id.begin = event.text.end;
  text += call_id;
  event.call_id.end = static_cast<int64_t>(text.size());
}

std::string describe(const ChatEvents& events) {
  std::string out;
  for (const ChatEvent& event : events.list) {
    out += to_string(event.kind);
    const bool is_call = event.kind == ChatEventKind::kToolCall || event.kind == ChatEventKind::kToolArguments;
    if (is_call) out += " " + std::to_string(event.call_idx);
    if (event.kind == ChatEventKind::kToolCall) out += " name=";
    if (event.kind == ChatEventKind::kToolArguments || !is_call) out += " ";
    out += events.text_of(event);
    out += '\n';
  }
  return out;
}

}  // namespace deepinfer
