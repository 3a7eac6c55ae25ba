// SPDX-License-Identifier: MIT
// One answer as typed pieces: what the stream parser makes from tokens and what each protocol writes. A batch holds the
// events of one step; its storage is kept between steps, so that nothing is allocated per token. Thread: its owner's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/range.h"
#include "chat/usage.h"

namespace deepinfer {

enum class ChatEventKind : uint8_t {
  kStart,          // once, first; ChatEvents::prompt is set
  kReasoning,      // text: a piece of the reasoning
  kText,           // text: a piece of the answer
  kToolCall,       // text: the function's name; call_id is set
  kToolArguments,  // text: a piece of the arguments of the call begun last, JSON as the model wrote it
  kFinish,         // once, last; ChatEvents::finish and usage are set
};
const char* to_string(ChatEventKind kind);

// Another token the model might have chosen; the bytes belong to the tokenizer.
struct TopLogprob {
  std::string_view bytes;
  double logprob = 0;
};

struct TokenLogprob {
  std::string_view bytes;
  double logprob = 0;
  Range top;  // into ChatEvents::top_logprobs
};

struct ChatEvent {
  ChatEventKind kind = ChatEventKind::kText;
  uint32_t call_idx = 0;  // kToolCall, kToolArguments: 0 for the first call of the answer
  Range text;             // into ChatEvents::text; whole code points
  Range call_id;          // into ChatEvents::text
  Range logprobs;         // into ChatEvents::logprobs; kText and kReasoning only
};

struct ChatEvents {
  std::vector<ChatEvent> list;
  std::string text;
  std::vector<TokenLogprob> logprobs;
  std::vector<TopLogprob> top_logprobs;
  PromptReport prompt;
  Finish finish;
  Usage usage;

  // Forgets the events and keeps the storage.
  void clear();
  std::string_view text_of(const ChatEvent& event) const { return view(event.text); }
  std::string_view call_id_of(const ChatEvent& event) const { return view(event.call_id); }

  // Appends text to the last event when that is of the same kind (and call), else adds an event.
  void add_text(ChatEventKind kind, uint32_t call_idx, std::string_view piece);
  void add_call(uint32_t call_idx, std::string_view name, std::string_view call_id);
  void add(ChatEventKind kind);

 private:
  std::string_view view(Range range) const {
    return std::string_view(text).substr(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
  }
};

// One line per event, for tests and logs: `tool_call 0 name=get_weather`.
std::string describe(const ChatEvents& events);

}  // namespace deepinfer
