// SPDX-License-Identifier: MIT
// Messages: content blocks that open, grow and stop, and the complete message (chat.md 5.2).
#include <utility>

#include "base/check.h"
#include "protocol/error_body.h"
#include "protocol/response_encoder.h"
#include "protocol/wire_json.h"

namespace deepinfer {
namespace {

std::string_view stop_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "max_tokens";
    case FinishReason::kContentFilter: return "refusal";
    case FinishReason::kToolCalls: return "tool_use";
    case FinishReason::kStopSequence: return "stop_sequence";
    case FinishReason::kStop:
    case FinishReason::kEndOfStream: break;
  }
  return "end_turn";
}

class MessagesEncoder : public ResponseEncoder {
 public:
  MessagesEncoder(const ResponseContext& context, const ResponseIdentity& identity)
      : context_(context), identity_(identity) {
    completed_s_ = identity.created_s;
    text_.reserve(size_t{1} << 16);
  }

  void encode(uint32_t choice_idx, const ChatEvents& events, WireEvents& out) override {
    CHECK(choice_idx == 0);
    for (const ChatEvent& event : events.list) {
      const std::string_view text = events.text_of(event);
      switch (event.kind) {
        case ChatEventKind::kStart: start(events.prompt, out); break;
        case ChatEventKind::kReasoning: write_delta(Block::kThinking, "thinking", text, out); break;
        case ChatEventKind::kText: write_delta(Block::kText, "text", text, out); break;
        case ChatEventKind::kToolCall: open_tool(text, events.call_id_of(event), out); break;
        case ChatEventKind::kToolArguments: write_delta(Block::kTool, "partial_json", text, out); break;
        case ChatEventKind::kFinish: finish(events, out); break;
      }
    }
  }

  void fail(const RequestError& error, WireEvents& out) override {
    out.open("error");
    out.bytes += anthropic_error_body(error, false);
    out.close();
  }

  void append_final(std::string& out) const override { append_message(out, stop_reason_, usage_.num_output_tokens); }

 private:
  enum class Block { kNone, kThinking, kText, kTool };

  void start(const PromptReport& prompt, WireEvents& out) {
    usage_.num_prompt_tokens = prompt.num_prompt_tokens;
    usage_.num_cached_tokens = prompt.num_cached_tokens;
    out.open("message_start");
    out.bytes += "{\"type\":\"message_start\",\"message\":";
    append_message(out.bytes, "null", 0);
    out.bytes += '}';
    out.close();
    if (context_.thinking) open(Block::kThinking, out);
  }

  // Opens a block of text or thinking unless one is open already.
  void open(Block block, WireEvents& out) {
    if (block_ == block) return;
    close(out);
    block_ = block;
    write_block_start(out, [&](std::string& bytes) {
      bytes += block == Block::kThinking ? "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"
                                         : "{\"type\":\"text\",\"text\":\"\"}";
    });
  }

  void open_tool(std::string_view name, std::string_view call_id, WireEvents& out) {
    close(out);
    block_ = Block::kTool;
    tool_head_ = "{\"type\":\"tool_use\",\"id\":";
    append_json_string(tool_head_, call_id);
    append_member(tool_head_, "name", name);
    tool_head_ += ",\"input\":";
    write_block_start(out, [&](std::string& bytes) { bytes += tool_head_ + "{}}"; });
  }

  template <typename WriteBlock>
  void write_block_start(WireEvents& out, WriteBlock write_block) {
    out.open("content_block_start");
    out.bytes += "{\"type\":\"content_block_start\",\"index\":";
    append_number(out.bytes, block_idx_);
    out.bytes += ",\"content_block\":";
    write_block(out.bytes);
    out.bytes += '}';
    out.close();
    if (block_idx_ > 0) return;
    out.open("ping");
    out.bytes += "{\"type\":\"ping\"}";
    out.close();
  }

  void write_delta(Block block, std::string_view key, std::string_view text, WireEvents& out) {
    if (block != Block::kTool) open(block, out);
    text_ += text;
    write_delta_event(key, text, out);
  }

  void write_delta_event(std::string_view key, std::string_view text, WireEvents& out) const {
    out.open("content_block_delta");
    out.bytes += "{\"type\":\"content_block_delta\",\"index\":";
    append_number(out.bytes, block_idx_);
    out.bytes += ",\"delta\":{\"type\":\"";
    out.bytes += key == "partial_json" ? "input_json" : key;
    out.bytes += "_delta\"";
    append_member(out.bytes, key, text);
    out.bytes += "}}";
    out.close();
  }

  const std::string& signature() const { return identity_.signature.empty() ? identity_.id : identity_.signature; }

  void close(WireEvents& out) {
    if (block_ == Block::kNone) return;
    if (!content_.empty()) content_ += ',';
    switch (block_) {
      case Block::kThinking:
        write_delta_event("signature", signature(), out);
        content_ += "{\"type\":\"thinking\"";
        append_member(content_, "thinking", text_);
        append_member(content_, "signature", signature());
        break;
      case Block::kText:
        content_ += "{\"type\":\"text\"";
        append_member(content_, "text", text_);
        break;
      default: content_ += tool_head_; append_arguments(content_, text_);
    }
    content_ += '}';
    text_.clear();
    out.open("content_block_stop");
    out.bytes += "{\"type\":\"content_block_stop\",\"index\":";
    append_number(out.bytes, block_idx_++);
    out.bytes += '}';
    out.close();
    block_ = Block::kNone;
  }

  void finish(const ChatEvents& events, WireEvents& out) {
    close(out);
    usage_.num_output_tokens = events.usage.num_output_tokens;
    stop_reason_.clear();
    append_json_string(stop_reason_, stop_name(events.finish.reason));
    if (events.finish.reason == FinishReason::kStopSequence) {
      stop_sequence_.clear();
      append_json_string(stop_sequence_, events.finish.stop_sequence);
    }
    out.open("message_delta");
    out.bytes += "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":" + stop_reason_ +
                 ",\"stop_sequence\":" + stop_sequence_ + "},\"usage\":";
    append_usage(out.bytes, usage_.num_output_tokens);
    out.bytes += '}';
    out.close();
    out.open("message_stop");
    out.bytes += "{\"type\":\"message_stop\"}";
    out.close();
  }

  void append_message(std::string& out, std::string_view stop_reason, uint64_t num_output_tokens) const {
    out += "{\"id\":";
    append_json_string(out, identity_.id);
    out += ",\"type\":\"message\",\"role\":\"assistant\"";
    append_member(out, "model", identity_.model);
    out += ",\"content\":[" + content_ + "],\"stop_reason\":";
    out += stop_reason;
    out += ",\"stop_sequence\":" + stop_sequence_ + ",\"usage\":";
    append_usage(out, num_output_tokens);
    out += '}';
  }

  void append_usage(std::string& out, uint64_t num_output_tokens) const {
    out += "{\"input_tokens\":";
    append_number(out, usage_.num_uncached_tokens());
    out += ",\"cache_creation_input_tokens\":0";
    append_member(out, "cache_read_input_tokens", usage_.num_cached_tokens);
    append_member(out, "output_tokens", num_output_tokens);
    out += ",\"service_tier\":\"standard\"}";
  }

  ResponseContext context_;
  ResponseIdentity identity_;
  Block block_ = Block::kNone;
  uint64_t block_idx_ = 0;
  std::string tool_head_;  // the open tool block up to its input
  std::string text_;       // of the open block; a tool's arguments
  std::string content_;    // the closed blocks, comma-separated
  std::string stop_reason_ = "null", stop_sequence_ = "null";
  Usage usage_;
};

}  // namespace

std::unique_ptr<ResponseEncoder> make_messages_encoder(const ResponseContext& context,
                                                       const ResponseIdentity& identity) {
  return std::make_unique<MessagesEncoder>(context, identity);
}

}  // namespace deepinfer
