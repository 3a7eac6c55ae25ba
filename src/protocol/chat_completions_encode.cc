// SPDX-License-Identifier: MIT
// Chat Completions: chunks and the complete object. Key order follows chat.md 5.1.
#include <utility>

#include "base/check.h"
#include "protocol/error_body.h"
#include "protocol/response_encoder.h"
#include "protocol/wire_json.h"

namespace deepinfer {
namespace {

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "length";
    case FinishReason::kContentFilter: return "content_filter";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kStop:
    case FinishReason::kStopSequence:
    case FinishReason::kEndOfStream: break;
  }
  return "stop";
}

struct Call {
  std::string id, name, arguments;
};

struct Choice {
  std::string text, reasoning;
  std::vector<Call> calls;
  std::string text_logprobs, reasoning_logprobs;
  bool is_finished = false;
  Finish finish;
  Usage usage;
};

class ChatCompletionsEncoder : public ResponseEncoder {
 public:
  ChatCompletionsEncoder(const ResponseContext& context, const ResponseIdentity& identity)
      : context_(context), identity_(identity), choices_(identity.num_choices) {
    completed_s_ = identity.created_s;
    head_ = "{\"id\":";
    append_json_string(head_, identity.id);
    head_ += ",\"object\":\"chat.completion.chunk\",\"created\":";
    append_number(head_, identity.created_s);
    append_member(head_, "model", identity.model);
    set_fingerprint("null");
    for (Choice& choice : choices_) {
      choice.text.reserve(size_t{1} << 16);
      choice.reasoning.reserve(size_t{1} << 16);
    }
  }

  void encode(uint32_t choice_idx, const ChatEvents& events, WireEvents& out) override {
    CHECK(choice_idx < choices_.size());
    Choice& choice = choices_[choice_idx];
    for (const ChatEvent& event : events.list) {
      if (event.kind == ChatEventKind::kStart) note_prompt(events.prompt);
      accumulate(choice, event, events);
      out.open(nullptr);
      write_chunk(choice_idx, event, events, out.bytes);
      out.close();
    }
  }

  void fail(const RequestError& error, WireEvents& out) override {
    out.open(nullptr);
    out.bytes += openai_error_body(error, context_.recipe_compatible);
    out.close();
  }

  void append_final(std::string& out) const override {
    out += "{\"id\":";
    append_json_string(out, identity_.id);
    out += ",\"object\":\"chat.completion\",\"created\":";
    append_number(out, identity_.created_s);
    append_member(out, "model", identity_.model);
    out += ",\"choices\":[";
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) out += ',';
      append_choice(out, i);
    }
    out += "],\"usage\":";
    append_usage(out);
    out += ",\"system_fingerprint\":" + fingerprint_ + "}";
  }

  std::string_view terminator() const override { return "[DONE]"; }

 private:
  void set_fingerprint(std::string json) {
    fingerprint_ = std::move(json);
    prefix_ = head_ + ",\"system_fingerprint\":" + fingerprint_ + ",\"choices\":[{\"index\":";
  }

  void note_prompt(const PromptReport& prompt) {
    if (!prompt.has_fingerprint) return;
    std::string json;
    append_json_string(json, prompt.fingerprint);
    set_fingerprint(std::move(json));
  }

  void accumulate(Choice& choice, const ChatEvent& event, const ChatEvents& events) {
    const std::string_view text = events.text_of(event);
    switch (event.kind) {
      case ChatEventKind::kStart: return;
      case ChatEventKind::kText: choice.text += text; return note_logprobs(choice.text_logprobs, event, events);
      case ChatEventKind::kReasoning:
        choice.reasoning += text;
        return note_logprobs(choice.reasoning_logprobs, event, events);
      case ChatEventKind::kToolCall:
        choice.calls.push_back({std::string(events.call_id_of(event)), std::string(text), ""});
        choice.calls.back().arguments.reserve(size_t{1} << 10);
        return;
      case ChatEventKind::kToolArguments: choice.calls.back().arguments += text; return;
      case ChatEventKind::kFinish:
        choice.is_finished = true;
        choice.finish = events.finish;
        choice.usage = events.usage;
    }
  }

  static void note_logprobs(std::string& json, const ChatEvent& event, const ChatEvents& events) {
    if (event.logprobs.empty()) return;
    if (!json.empty()) json += ',';
    append_logprobs(json, events, event.logprobs);
  }

  void write_chunk(uint32_t choice_idx, const ChatEvent& event, const ChatEvents& events, std::string& out) const {
    out += prefix_;
    append_number(out, uint64_t{choice_idx});
    out += ",\"delta\":{";
    write_delta(event, events, out);
    out += "},\"logprobs\":";
    if (event.logprobs.empty()) {
      out += "null";
    } else {
      out += event.kind == ChatEventKind::kText ? "{\"content\":[" : "{\"reasoning_content\":[";
      append_logprobs(out, events, event.logprobs);
      out += "]}";
    }
    out += ",\"finish_reason\":";
    const bool is_finish = event.kind == ChatEventKind::kFinish;
    if (is_finish) {
      append_json_string(out, finish_name(events.finish.reason));
    } else {
      out += "null";
    }
    out += "}]";
    if (is_finish && is_last_choice()) {
      out += ",\"usage\":";
      append_usage(out);
    } else if (context_.include_usage || !context_.stream) {
      out += ",\"usage\":null";
    }
    out += '}';
  }

  void write_delta(const ChatEvent& event, const ChatEvents& events, std::string& out) const {
    const std::string_view text = events.text_of(event);
    switch (event.kind) {
      case ChatEventKind::kStart:
        if (context_.thinking && !context_.starts_after_reasoning) {
          out += "\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"\"";
        } else {
          out += "\"role\":\"assistant\",\"content\":\"\"";
          if (context_.thinking) out += ",\"reasoning_content\":null";
        }
        return;
      case ChatEventKind::kReasoning:
        out += "\"content\":null,\"reasoning_content\":";
        append_json_string(out, text);
        return;
      case ChatEventKind::kToolCall:
        out += "\"tool_calls\":[{\"index\":";
        append_number(out, uint64_t{event.call_idx});
        append_member(out, "id", events.call_id_of(event));
        out += ",\"type\":\"function\",\"function\":{\"name\":";
        append_json_string(out, text);
        out += ",\"arguments\":\"\"}}]";
        return;
      case ChatEventKind::kToolArguments:
        out += "\"tool_calls\":[{\"index\":";
        append_number(out, uint64_t{event.call_idx});
        out += ",\"function\":{\"arguments\":";
        append_json_string(out, text);
        out += "}}]";
        return;
      case ChatEventKind::kText:
      case ChatEventKind::kFinish:
        out += "\"content\":";
        append_json_string(out, text);
        if (context_.thinking) out += ",\"reasoning_content\":null";
    }
  }

  void append_choice(std::string& out, size_t index) const {
    const Choice& choice = choices_[index];
    out += "{\"index\":";
    append_number(out, uint64_t{index});
    out += ",\"message\":{\"role\":\"assistant\"";
    append_member(out, "content", choice.text);
    const bool has_reasoning = context_.thinking && !context_.starts_after_reasoning;
    if (has_reasoning || !choice.reasoning.empty()) append_member(out, "reasoning_content", choice.reasoning);
    if (!choice.calls.empty()) append_calls(out, choice.calls);
    out += "},\"logprobs\":";
    append_choice_logprobs(out, choice);
    out += ",\"finish_reason\":";
    if (choice.is_finished) {
      append_json_string(out, finish_name(choice.finish.reason));
    } else {
      out += "null";
    }
    out += '}';
  }

  static void append_calls(std::string& out, const std::vector<Call>& calls) {
    out += ",\"tool_calls\":[";
    for (size_t i = 0; i < calls.size(); ++i) {
      if (i > 0) out += ',';
      out += "{\"index\":";
      append_number(out, uint64_t{i});
      append_member(out, "id", calls[i].id);
      out += ",\"type\":\"function\",\"function\":{\"name\":";
      append_json_string(out, calls[i].name);
      append_member(out, "arguments", calls[i].arguments);
      out += "}}";
    }
    out += ']';
  }

  static void append_choice_logprobs(std::string& out, const Choice& choice) {
    if (choice.text_logprobs.empty() && choice.reasoning_logprobs.empty()) {
      out += "null";
      return;
    }
    out += '{';
    if (!choice.text_logprobs.empty()) out += "\"content\":[" + choice.text_logprobs + "]";
    if (!choice.text_logprobs.empty() && !choice.reasoning_logprobs.empty()) out += ',';
    if (!choice.reasoning_logprobs.empty()) out += "\"reasoning_content\":[" + choice.reasoning_logprobs + "]";
    out += '}';
  }

  bool is_last_choice() const {
    for (const Choice& choice : choices_) {
      if (!choice.is_finished) return false;
    }
    return true;
  }

  // One prompt, all choices' output.
  void append_usage(std::string& out) const {
    Usage usage;
    for (const Choice& choice : choices_) {
      if (choice.usage.num_prompt_tokens > 0) usage.num_prompt_tokens = choice.usage.num_prompt_tokens;
      if (choice.usage.num_cached_tokens > 0) usage.num_cached_tokens = choice.usage.num_cached_tokens;
      usage.num_output_tokens += choice.usage.num_output_tokens;
      usage.num_reasoning_tokens += choice.usage.num_reasoning_tokens;
    }
    out += "{\"prompt_tokens\":";
    append_number(out, usage.num_prompt_tokens);
    append_member(out, "completion_tokens", usage.num_output_tokens);
    append_member(out, "total_tokens", usage.num_prompt_tokens + usage.num_output_tokens);
    out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
    append_number(out, usage.num_cached_tokens);
    if (context_.thinking) {
      out += "},\"completion_tokens_details\":{\"reasoning_tokens\":";
      append_number(out, usage.num_reasoning_tokens);
    }
    out += '}';
    append_member(out, "prompt_cache_hit_tokens", usage.num_cached_tokens);
    append_member(out, "prompt_cache_miss_tokens", usage.num_uncached_tokens());
    out += '}';
  }

  ResponseContext context_;
  ResponseIdentity identity_;
  std::vector<Choice> choices_;
  std::string head_, fingerprint_, prefix_;  // prefix_: everything before the choice's index
};

}  // namespace

std::unique_ptr<ResponseEncoder> make_chat_completions_encoder(const ResponseContext& context,
                                                               const ResponseIdentity& identity) {
  return std::make_unique<ChatCompletionsEncoder>(context, identity);
}

}  // namespace deepinfer
