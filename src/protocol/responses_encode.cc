// SPDX-License-Identifier: MIT
// Responses: output items that open, grow and close, each event numbered, and the response object (chat.md 5.3).
#include <utility>

#include "base/check.h"
#include "protocol/custom_tool_input.h"
#include "protocol/response_object.h"
#include "protocol/wire_json.h"

namespace deepinfer {
namespace {

class ResponsesEncoder : public ResponseEncoder {
 public:
  ResponsesEncoder(const ResponseContext& context, const ResponseIdentity& identity)
      : context_(context), identity_(identity), object_(context, identity) {
    completed_s_ = identity.created_s;
    state_.completed_s = completed_s_;
    text_.reserve(size_t{1} << 16);
  }

  void encode(uint32_t choice_idx, const ChatEvents& events, WireEvents& out) override {
    CHECK(choice_idx == 0);
    for (const ChatEvent& event : events.list) {
      const std::string_view text = events.text_of(event);
      switch (event.kind) {
        case ChatEventKind::kStart: start(events.prompt, out); break;
        case ChatEventKind::kReasoning:
          open_text(Item::kReasoning, out);
          write_text_delta(text, event, events, out);
          break;
        case ChatEventKind::kText:
          open_text(Item::kMessage, out);
          write_text_delta(text, event, events, out);
          break;
        case ChatEventKind::kToolCall: open_call(text, events.call_id_of(event), out); break;
        case ChatEventKind::kToolArguments: write_arguments(text, out); break;
        case ChatEventKind::kFinish: finish(events, out); break;
      }
    }
  }

  void fail(const RequestError& error, WireEvents& out) override {
    error_ = "{\"code\":";
    append_json_string(error_, error.http_status < 500 ? "invalid_request_error" : "server_error");
    append_member(error_, "message", error.message);
    error_ += '}';
    status_ = ResponseObject::Status::kFailed;
    write_response_event("response.failed", out);
  }

  void append_final(std::string& out) const override { object_.append(out, state()); }

 private:
  enum class Item { kNone, kReasoning, kMessage, kFunction, kCustom, kSearch };

  ResponseObject::State state() const {
    ResponseObject::State state = state_;
    state.status = status_;
    state.completed_s = completed_s_;
    state.incomplete_reason = incomplete_reason_;
    state.error = error_;
    state.output = output_;
    if (has_usage_) state.usage = &usage_;
    return state;
  }

  void start(const PromptReport& prompt, WireEvents& out) {
    usage_.num_prompt_tokens = prompt.num_prompt_tokens;
    usage_.num_cached_tokens = prompt.num_cached_tokens;
    write_response_event("response.created", out);
    write_response_event("response.in_progress", out);
  }

  void write_response_event(const char* name, WireEvents& out) {
    open_event(name, out);
    out.bytes += ",\"response\":";
    object_.append(out.bytes, state());
    close_event(out);
  }

  void open_event(const char* name, WireEvents& out) const {
    out.open(name);
    out.bytes += "{\"type\":\"";
    out.bytes += name;
    out.bytes += '"';
  }
  void close_event(WireEvents& out) {
    append_member(out.bytes, "sequence_number", num_events_++);
    out.bytes += '}';
    out.close();
  }
  // Ends an event of the open item.
  void close_item_event(WireEvents& out) {
    out.bytes += ",\"item_id\":\"";
    out.bytes += item_id_;
    out.bytes += '"';
    append_member(out.bytes, "output_index", output_idx_);
    close_event(out);
  }

  void open_text(Item kind, WireEvents& out) {
    if (item_ == kind) return;
    close_item(false, false, out);
    open_item(kind, kind == Item::kReasoning ? "rs_" : "msg_");
    write_item_event("response.output_item.added", "in_progress", out);
    write_part_event("response.content_part.added", "", "", out);
  }

  void open_call(std::string_view name, std::string_view call_id, WireEvents& out) {
    close_item(true, false, out);
    if (context_.custom_tools.contains(std::string(name))) {
      open_item(Item::kCustom, "ctc_");
      custom_input_.begin();
    } else if (context_.client_tool_search && name == "tool_search") {
      open_item(Item::kSearch, "tsc_");
    } else {
      open_item(Item::kFunction, "fc_");
    }
    call_head_.clear();
    append_member(call_head_, "call_id", call_id);
    const auto namespaced = context_.namespaced_tools.find(std::string(name));
    if (item_ == Item::kSearch) {
      call_head_ += ",\"execution\":\"client\"";
    } else if (item_ == Item::kFunction && namespaced != context_.namespaced_tools.end()) {
      append_member(call_head_, "name", namespaced->second.second);
      append_member(call_head_, "namespace", namespaced->second.first);
    } else {
      append_member(call_head_, "name", name);
    }
    write_item_event("response.output_item.added", "in_progress", out);
  }

  void open_item(Item kind, std::string_view prefix) {
    item_ = kind;
    std::string id(prefix);
    id += identity_.id + "_";
    append_number(id, output_idx_);
    append_json_string(item_id_, id);
    item_id_ = item_id_.substr(1, item_id_.size() - 2);
    phase_ = "final_answer";
  }

  void write_text_delta(std::string_view text, const ChatEvent& event, const ChatEvents& events, WireEvents& out) {
    text_ += text;
    const bool is_message = item_ == Item::kMessage;
    open_event(is_message ? "response.output_text.delta" : "response.reasoning_text.delta", out);
    out.bytes += ",\"content_index\":0";
    append_member(out.bytes, "delta", text);
    if (is_message) {
      out.bytes += ",\"logprobs\":[";
      append_logprobs(out.bytes, events, event.logprobs);
      out.bytes += ']';
      if (!event.logprobs.empty()) {
        if (!logprobs_.empty()) logprobs_ += ',';
        append_logprobs(logprobs_, events, event.logprobs);
      }
    }
    close_item_event(out);
  }

  void write_arguments(std::string_view text, WireEvents& out) {
    if (item_ == Item::kCustom) {
      scratch_.clear();
      custom_input_.push(text, scratch_);
      write_custom_delta(out);
      return;
    }
    text_ += text;
    if (item_ != Item::kFunction) return;
    open_event("response.function_call_arguments.delta", out);
    append_member(out.bytes, "delta", text);
    close_item_event(out);
  }

  void write_custom_delta(WireEvents& out) {
    if (scratch_.empty()) return;
    text_ += scratch_;
    open_event("response.custom_tool_call_input.delta", out);
    append_member(out.bytes, "delta", scratch_);
    close_item_event(out);
  }

  // `before_call`: a call follows directly. `is_incomplete`: the answer was cut off in this item.
  void close_item(bool before_call, bool is_incomplete, WireEvents& out) {
    if (item_ == Item::kNone) return;
    const char* status = is_incomplete ? "incomplete" : "completed";
    if (before_call) phase_ = "commentary";
    switch (item_) {
      case Item::kMessage:
      case Item::kReasoning: close_text(out); break;
      case Item::kCustom:
        scratch_.clear();
        custom_input_.finish(scratch_);
        write_custom_delta(out);
        write_done("response.custom_tool_call_input.done", "input", out);
        break;
      case Item::kFunction: write_done("response.function_call_arguments.done", "arguments", out); break;
      case Item::kSearch:
        scratch_.clear();
        if (!append_arguments(scratch_, text_)) status = "incomplete";
        break;
      case Item::kNone: break;
    }
    write_item_event("response.output_item.done", status, out);
    if (!output_.empty()) output_ += ',';
    append_item(output_, status, false);
    text_.clear();
    logprobs_.clear();
    item_id_.clear();
    item_ = Item::kNone;
    ++output_idx_;
  }

  void close_text(WireEvents& out) {
    const bool is_message = item_ == Item::kMessage;
    open_event(is_message ? "response.output_text.done" : "response.reasoning_text.done", out);
    out.bytes += ",\"content_index\":0";
    append_member(out.bytes, "text", text_);
    if (is_message) out.bytes += ",\"logprobs\":[" + logprobs_ + "]";
    close_item_event(out);
    write_part_event("response.content_part.done", text_, logprobs_, out);
  }

  void write_done(const char* name, std::string_view key, WireEvents& out) {
    open_event(name, out);
    append_member(out.bytes, key, text_);
    close_item_event(out);
  }

  void write_part_event(const char* name, std::string_view text, std::string_view logprobs, WireEvents& out) {
    open_event(name, out);
    out.bytes += ",\"content_index\":0,\"part\":";
    append_part(out.bytes, text, logprobs);
    close_item_event(out);
  }

  void write_item_event(const char* name, const char* status, WireEvents& out) {
    open_event(name, out);
    out.bytes += ",\"item\":";
    append_item(out.bytes, status, name == std::string_view("response.output_item.added"));
    append_member(out.bytes, "output_index", output_idx_);
    close_event(out);
  }

  void append_part(std::string& out, std::string_view text, std::string_view logprobs) const {
    if (item_ == Item::kReasoning) {
      out += "{\"type\":\"reasoning_text\"";
    } else {
      out += "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[";
      out += logprobs;
      out += ']';
    }
    append_member(out, "text", text);
    out += '}';
  }

  // The open item; `is_new` before it has any content.
  void append_item(std::string& out, std::string_view status, bool is_new) const {
    static constexpr std::string_view kTypes[] = {
        "", "reasoning", "message", "function_call", "custom_tool_call", "tool_search_call"};
    out += "{\"type\":\"";
    out += kTypes[static_cast<size_t>(item_)];
    out += "\",\"id\":\"" + item_id_ + "\"";
    append_member(out, "status", status);
    switch (item_) {
      case Item::kReasoning:
      case Item::kMessage:
        if (item_ == Item::kMessage) {
          out += ",\"role\":\"assistant\"";
          append_member(out, "phase", phase_);
        }
        out += ",\"content\":[";
        if (!is_new) append_part(out, text_, logprobs_);
        out += ']';
        if (item_ == Item::kReasoning) {
          out += ",\"summary\":[]";
          append_member(out, "encrypted_content", identity_.id + "-0");
        }
        break;
      case Item::kFunction:
        out += call_head_;
        append_member(out, "arguments", text_);
        break;
      case Item::kCustom:
        out += call_head_;
        append_member(out, "input", text_);
        break;
      case Item::kSearch:
        out += call_head_ + ",\"arguments\":";
        append_arguments(out, status == "completed" ? std::string_view(text_) : std::string_view());
        break;
      case Item::kNone: break;
    }
    out += '}';
  }

  void finish(const ChatEvents& events, WireEvents& out) {
    const bool is_length = events.finish.reason == FinishReason::kLength;
    const bool is_incomplete = is_length || events.finish.reason == FinishReason::kContentFilter;
    close_item(false, is_incomplete, out);
    usage_ = events.usage;
    has_usage_ = true;
    status_ = is_incomplete ? ResponseObject::Status::kIncomplete : ResponseObject::Status::kCompleted;
    if (is_incomplete) incomplete_reason_ = is_length ? "max_output_tokens" : "content_filter";
    write_response_event(is_incomplete ? "response.incomplete" : "response.completed", out);
  }

  ResponseContext context_;
  ResponseIdentity identity_;
  ResponseObject object_;
  ResponseObject::State state_;
  ResponseObject::Status status_ = ResponseObject::Status::kInProgress;
  std::string_view incomplete_reason_;
  std::string error_;
  uint64_t num_events_ = 0;
  Usage usage_;
  bool has_usage_ = false;

  Item item_ = Item::kNone;
  uint64_t output_idx_ = 0;
  std::string item_id_;    // escaped for JSON
  std::string call_head_;  // members of a call before its arguments
  std::string_view phase_ = "final_answer";
  std::string text_;      // of the open item: text, arguments or input
  std::string logprobs_;  // of the open message, as JSON
  std::string output_;    // the closed items
  std::string scratch_;
  CustomToolInput custom_input_;
};

}  // namespace

std::unique_ptr<ResponseEncoder> make_responses_encoder(const ResponseContext& context,
                                                        const ResponseIdentity& identity) {
  return std::make_unique<ResponsesEncoder>(context, identity);
}

}  // namespace deepinfer
