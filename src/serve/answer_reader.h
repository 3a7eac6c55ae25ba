// SPDX-License-Identifier: MIT
// Reads the tokens of one answer as a person wants them: text, reasoning, tool calls, finish reason. With a vocabulary
// the stream parser reads a conversation's answer; without, tokens are only decoded. Thread: its owner's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "chat/stream_parser.h"
#include "tokenizer/detokenizer.h"

namespace deepinfer {

class AnswerReader {
 public:
  enum class Part { kText, kReasoning };
  using OnPiece = std::function<void(Part part, std::string_view piece)>;  // pieces as they come; may be empty

  // `vocabulary` may be null; it and the tokenizer outlive the reader.
  AnswerReader(const Tokenizer& tokenizer, const OutputVocabulary* vocabulary, const ParsingOptions& parsing,
               OnPiece on_piece);

  // `ends`: the token ends the sequence and is no part of the answer. False when the answer is complete.
  bool push(TokenId id, bool ends);
  void finish(BackendFinish reason);

  std::string text, reasoning, finish_reason;
  Json::Array tool_calls;  // {"id","name","arguments"}

 private:
  void take(const ChatEvent& event);
  void take_events();
  void add(Part part, std::string_view piece);

  Detokenizer detokenizer_;
  std::unique_ptr<StreamParser> parser_;
  ChatEvents events_;
  OnPiece on_piece_;
};

}  // namespace deepinfer
