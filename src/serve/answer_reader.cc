// SPDX-License-Identifier: MIT
#include "serve/answer_reader.h"

namespace deepinfer {

AnswerReader::AnswerReader(const Tokenizer& tokenizer, const OutputVocabulary* vocabulary,
                           const ParsingOptions& parsing, OnPiece on_piece)
    : detokenizer_(tokenizer), on_piece_(std::move(on_piece)) {
  if (vocabulary) parser_ = std::make_unique<StreamParser>(*vocabulary, StreamParserOptions{.parsing = parsing});
}

bool AnswerReader::push(TokenId id, bool ends) {
  if (ends) return true;
  if (!parser_) {
    add(Part::kText, detokenizer_.push(id));
    return true;
  }
  events_.clear();
  if (!parser_->push_tokens({&id, 1}, {}, events_).ok()) return false;
  take_events();
  return !parser_->is_finished();
}

void AnswerReader::finish(BackendFinish reason) {
  if (!parser_) {
    add(Part::kText, detokenizer_.finish());
  } else if (!parser_->is_finished()) {
    events_.clear();
    parser_->finish(reason, events_);
    take_events();
  }
  if (finish_reason.empty()) finish_reason = reason == BackendFinish::kLength ? "length" : "stop";
}

void AnswerReader::take_events() {
  for (const ChatEvent& event : events_.list) take(event);
}

void AnswerReader::take(const ChatEvent& event) {
  const std::string_view piece = events_.text_of(event);
  switch (event.kind) {
    case ChatEventKind::kText: add(Part::kText, piece); break;
    case ChatEventKind::kReasoning: add(Part::kReasoning, piece); break;
    case ChatEventKind::kToolCall:
      tool_calls.push_back(
          Json::Object{{"id", std::string(events_.call_id_of(event))}, {"name", piece}, {"arguments", ""}});
      break;
    case ChatEventKind::kToolArguments: tool_calls.back().find("arguments")->as_string() += piece; break;
    case ChatEventKind::kFinish:
      finish_reason = events_.finish.reason == FinishReason::kToolCalls ? "tool_calls"
                      : events_.finish.reason == FinishReason::kLength  ? "length"
                                                                        : "stop";
      break;
    case ChatEventKind::kStart: break;
  }
}

void AnswerReader::add(Part part, std::string_view piece) {
  (part == Part::kText ? text : reasoning) += piece;
  if (on_piece_) on_piece_(part, piece);
}

}  // namespace deepinfer
