// SPDX-License-Identifier: MIT
// Output tokens of one answer to ChatEvents, as they arrive: reasoning, text, tool calls, finish. Control tokens are
// recognised by id, never by spelling; output that comes as text is recognised by spelling. What comes out does not
// depend on how the tokens were cut into steps. Reading is linear, and nothing is allocated per token once the buffers
// have grown. No input is an error: unknown ids give nothing, markup that is cut off or malformed ends in a stated
// finish reason. Thread: one owner. Source of the rules: chat.md 4.
//
// Beside the plain reading there is `recipe_compatible`, which mirrors deepseek-recipe 0.2.0 (its known bugs repaired).
// What differs without it: malformed call blocks are read tolerantly and prose inside them is given back as text; a
// control token that opens another turn, and the end of sentence, end the answer; `<think>` is dropped; output tokens
// are counted up to the one that completed a stop sequence; reasoning tokens are those generated, not a re-encoding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/philox.h"
#include "base/status.h"
#include "chat/chat_event.h"
#include "chat/chat_request.h"
#include "chat/output_stage.h"
#include "chat/output_vocabulary.h"
#include "chat/parameter_name.h"
#include "chat/usage.h"

namespace deepinfer {

struct StreamParserOptions {
  ParsingOptions parsing;
  bool recipe_compatible = false;
  bool ignore_end_of_sentence = false;  // the request asked to generate past it: it is dropped instead
  uint64_t call_id_seed = 0;            // the random part of call ids
};

struct IdLogprob {
  TokenId id = 0;
  double logprob = 0;
};
struct PositionLogprobs {
  double logprob = 0;
  std::vector<IdLogprob> top;
};

class StreamParser {
 public:
  // The vocabulary must outlive the parser.
  StreamParser(const OutputVocabulary& vocabulary, StreamParserOptions options);

  // All of these append to `out`, which the caller clears between steps.
  // What is known of the prompt. Optional; only the first one counts, and only before any output.
  void push_prompt(PromptReport report, ChatEvents& out);
  // The ids of one step. `logprobs` is empty or has one entry per id; another number is an error that ends the stream
  // without a finish event.
  Status push_tokens(std::span<const TokenId> ids, std::span<const PositionLogprobs> logprobs, ChatEvents& out);
  // Output of a backend that gives text: `num_tokens` is only counted.
  void push_text(std::string_view text, uint64_t num_tokens, ChatEvents& out);
  // The backend finished. For kStop and kContentFilter the caller leaves the end-of-sentence id out.
  void finish(BackendFinish reason, ChatEvents& out);
  // The output ended without a reason.
  void finish_without_reason(ChatEvents& out);

  // After a finish event: a stop sequence matched, the turn ended, or finish was called. Later input is ignored, so the
  // caller can stop the backend.
  bool is_finished() const { return is_finished_; }
  const Usage& usage() const { return usage_; }

 private:
  struct Piece {  // bytes that came together with these log probabilities
    size_t num_bytes = 0;
    Range logprobs;        // into piece_logprobs_
    uint64_t segment = 0;  // the last one that was given them
  };

  void start(ChatEvents& out);
  void end(FinishReason reason, ChatEvents& out);
  void flush(ChatEvents& out);
  bool push_control(TokenId id, ChatEvents& out);
  void push_plain(TokenId id, ChatEvents& out);
  void release_piece(bool is_complete, ChatEvents& out);
  void note_logprobs(TokenId id, const PositionLogprobs& logprobs);
  void count_tokens(uint64_t num_tokens);

  void read(std::string_view bytes, ByteOrigin origin, ChatEvents& out);
  size_t read_parameter_name(std::string_view data, size_t begin, ChatEvents& out);
  const Transition* step(const StageRules& rules, uint8_t byte, ByteOrigin origin, size_t& match_bytes);
  size_t num_open_bytes() const;
  void enter(Stage stage);
  Stage apply(const Transition& transition, std::string_view match, ChatEvents& out);
  void emit(Effect effect, std::string_view bytes, ChatEvents& out);
  void emit_text(ChatEventKind kind, std::string_view bytes, ChatEvents& out);
  void emit_spaces(size_t num_bytes, ChatEvents& out);
  void emit_argument(std::string_view text, ChatEvents& out);
  void emit_escaped(std::string_view bytes, ChatEvents& out);
  void close_arguments(ChatEvents& out);
  void flush_stray(ChatEvents& out);
  void begin_call(ChatEvents& out);
  void name_call(ChatEvents& out);
  void take_pieces(size_t num_bytes, ChatEvents* out);
  void begin_segment(Effect effect, bool is_marker);

  const OutputVocabulary* vocabulary_;
  StreamParserOptions options_;
  OutputStages stages_;
  Rng call_id_rng_;

  bool is_started_ = false, is_finished_ = false;
  PromptReport prompt_;
  Usage usage_;
  std::string stop_sequence_;

  // Ids not yet given to the machine: an incomplete code point, and in compatible mode all ids that came with it.
  std::string piece_;
  uint64_t num_piece_tokens_ = 0;
  std::string repaired_;  // scratch

  // The machine.
  Stage stage_ = Stage::kContentStart;
  std::vector<MarkerSearch> searches_;  // one per transition of the stage
  bool is_quiet_ = true;                // no search has anything open
  bool is_first_byte_ = true;           // of the stage
  bool sent_space_ = false;             // in the stage
  std::string held_;                    // bytes that may become a marker
  ParameterName parameter_name_;
  std::string name_, call_id_, scratch_;
  uint32_t num_calls_ = 0;
  bool has_arguments_ = false;
  bool has_reasoning_ = false;
  std::string reasoning_;         // compatible mode: re-encoded at the end for the count
  std::string tag_text_, stray_;  // tolerant reading
  bool tracks_pieces_ = false;    // log probabilities came, or JSON mode counts pieces
  std::vector<Piece> pieces_;     // of the bytes in held_, in order
  size_t num_taken_pieces_ = 0;
  std::vector<TokenLogprob> piece_logprobs_;
  std::vector<TopLogprob> piece_top_;
  size_t num_noted_ = 0;  // piece_logprobs_ that belong to no Piece yet start here
  uint64_t segment_ = 0;  // of bytes that met the same fate, counted from 1
  Effect segment_effect_ = Effect::kDrop;
  bool is_marker_segment_ = false;
};

}  // namespace deepinfer
