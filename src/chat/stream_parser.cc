// SPDX-License-Identifier: MIT
#include "chat/stream_parser.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "chat/call_id.h"
#include "chat/json_escape.h"

namespace deepinfer {
namespace {

// Bytes at the end of `text` that may still become a code point (0 to 3).
size_t num_incomplete_bytes(std::string_view text) {
  const size_t limit = std::min<size_t>(3, text.size());
  for (size_t n = 1; n <= limit; ++n) {
    const auto byte = static_cast<uint8_t>(text[text.size() - n]);
    if (byte < 0x80) return 0;
    if (byte >= 0xC0) return is_incomplete_utf8(text.substr(text.size() - n)) ? n : 0;
  }
  return 0;
}

// True for the inside of a tag as templates write it, also when cut off: such text is markup and never shown.
bool is_tag_text(std::string_view text) {
  if (text.starts_with(' ')) text.remove_prefix(1);
  for (const std::string_view word : {"calls", "tool_calls", "function_calls", "invoke", "parameter"}) {
    if (word.starts_with(text) || text.starts_with(word)) return true;
  }
  return false;
}

}  // namespace

StreamParser::StreamParser(const OutputVocabulary& vocabulary, StreamParserOptions options)
    : vocabulary_(&vocabulary),
      options_(std::move(options)),
      stages_(make_output_stages(options_.parsing, options_.recipe_compatible,
                                 vocabulary.controls.spelling(Control::kThinkEnd),
                                 vocabulary.controls.spelling(Control::kDsml))),
      call_id_rng_(options_.call_id_seed),
      parameter_name_(options_.recipe_compatible),
      tracks_pieces_(options_.recipe_compatible && options_.parsing.parse_json_output) {
  enter(stages_.first);
}

void StreamParser::push_prompt(PromptReport report, ChatEvents& out) {
  if (is_finished_ || is_started_) return;
  prompt_ = std::move(report);
  usage_.num_prompt_tokens = prompt_.num_prompt_tokens;
  usage_.num_cached_tokens = prompt_.num_cached_tokens;
  start(out);
}

void StreamParser::start(ChatEvents& out) {
  if (is_started_) return;
  is_started_ = true;
  out.prompt = prompt_;
  out.add(ChatEventKind::kStart);
}

Status StreamParser::push_tokens(std::span<const TokenId> ids, std::span<const PositionLogprobs> logprobs,
                                 ChatEvents& out) {
  if (is_finished_) return {};
  if (!logprobs.empty() && logprobs.size() != ids.size()) {
    is_finished_ = true;
    return invalid_argument("output tokens: expected " + std::to_string(ids.size()) +
                            " log probabilities, one per token, got " + std::to_string(logprobs.size()));
  }
  tracks_pieces_ |= !logprobs.empty();
  for (size_t i = 0; i < ids.size() && !is_finished_; ++i) {
    const bool is_control = vocabulary_->tokenizer->is_control(ids[i]);
    if (is_control) release_piece(true, out);
    if (is_finished_) break;
    if (!logprobs.empty()) note_logprobs(ids[i], logprobs[i]);
    if (is_control) {
      push_control(ids[i], out);
    } else {
      push_plain(ids[i], out);
    }
  }
  if (!is_finished_) release_piece(false, out);
  return {};
}

void StreamParser::push_text(std::string_view text, uint64_t num_tokens, ChatEvents& out) {
  if (is_finished_) return;
  start(out);
  count_tokens(num_tokens);
  if (is_valid_utf8(text)) {
    read(text, ByteOrigin::kText, out);
  } else {
    read(to_valid_utf8(text), ByteOrigin::kText, out);
  }
}

void StreamParser::finish(BackendFinish reason, ChatEvents& out) {
  if (is_finished_) return;
  flush(out);
  switch (reason) {
    case BackendFinish::kStop: end(num_calls_ > 0 ? FinishReason::kToolCalls : FinishReason::kStop, out); break;
    case BackendFinish::kLength: end(FinishReason::kLength, out); break;
    case BackendFinish::kContentFilter: end(FinishReason::kContentFilter, out); break;
  }
}

void StreamParser::finish_without_reason(ChatEvents& out) {
  if (is_finished_) return;
  flush(out);
  end(FinishReason::kEndOfStream, out);
}

// The held bytes are no marker after all. A code point that is still incomplete is dropped: it is no text.
void StreamParser::flush(ChatEvents& out) {
  emit(stages_[stage_].other, held_, out);
  held_.clear();
  if (stage_ == Stage::kParameterName) {
    scratch_.clear();
    parameter_name_.finish(scratch_);
    emit_argument(scratch_, out);
  }
  if (stage_ == Stage::kCallEndTag) close_arguments(out);
  if (!is_tag_text(tag_text_)) stray_ += tag_text_;
  flush_stray(out);
}

void StreamParser::end(FinishReason reason, ChatEvents& out) {
  start(out);
  is_finished_ = true;
  if (!reasoning_.empty()) {
    usage_.num_reasoning_tokens = vocabulary_->tokenizer->encode_with_added(reasoning_).size();
  }
  out.finish.reason = reason;
  out.finish.stop_sequence = stop_sequence_;
  out.usage = usage_;
  out.add(ChatEventKind::kFinish);
}

void StreamParser::count_tokens(uint64_t num_tokens) {
  usage_.num_output_tokens += num_tokens;
  const bool is_reasoning = stage_ == Stage::kReasoning || stage_ == Stage::kReasoningStart;
  if (is_reasoning && !options_.recipe_compatible) usage_.num_reasoning_tokens += num_tokens;
}

bool StreamParser::push_control(TokenId id, ChatEvents& out) {
  start(out);
  if (!options_.recipe_compatible) {
    const bool is_end = id == vocabulary_->controls.id(Control::kEos);
    if (is_end || vocabulary_->starts_turn(id)) {
      if (is_end && options_.ignore_end_of_sentence) return true;
      finish(BackendFinish::kStop, out);
      return false;
    }
    const bool is_answer = stage_ <= Stage::kContent;
    if (id == vocabulary_->controls.id(Control::kThinkStart) && is_answer) {
      count_tokens(1);
      return true;
    }
  }
  if (id == vocabulary_->controls.id(Control::kThinkEnd)) {
    ++usage_.num_output_tokens;
  } else {
    count_tokens(1);
  }
  read(vocabulary_->tokenizer->token_bytes(id), ByteOrigin::kControlId, out);
  return true;
}

void StreamParser::push_plain(TokenId id, ChatEvents& out) {
  const std::string_view bytes = vocabulary_->tokenizer->token_bytes(id);
  if (options_.recipe_compatible) {
    piece_ += bytes;
    ++num_piece_tokens_;
    return;
  }
  count_tokens(1);
  if (piece_.empty() && is_valid_utf8(bytes)) {
    if (bytes.empty()) return;
    start(out);
    read(bytes, ByteOrigin::kPlainId, out);
    return;
  }
  piece_ += bytes;
  release_piece(false, out);
}

// Gives the collected bytes to the machine. While more may follow, an incomplete code point at the end is kept back.
void StreamParser::release_piece(bool is_complete, ChatEvents& out) {
  if (piece_.empty()) return;
  size_t num_kept = is_complete ? 0 : num_incomplete_bytes(piece_);
  if (num_kept > 0 && (options_.recipe_compatible || num_kept == piece_.size())) return;
  start(out);
  if (num_piece_tokens_ > 0) count_tokens(num_piece_tokens_);
  num_piece_tokens_ = 0;
  const std::string_view ready = std::string_view(piece_).substr(0, piece_.size() - num_kept);
  if (is_valid_utf8(ready)) {
    read(ready, ByteOrigin::kPlainId, out);
  } else {
    repaired_ = to_valid_utf8(ready);
    read(repaired_, ByteOrigin::kPlainId, out);
  }
  piece_.erase(0, piece_.size() - num_kept);
}

}  // namespace deepinfer
