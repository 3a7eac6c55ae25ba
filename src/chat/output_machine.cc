// SPDX-License-Identifier: MIT
// The part of StreamParser that runs the stage table over bytes and turns effects into events.
#include <algorithm>

#include "chat/call_id.h"
#include "chat/json_escape.h"
#include "chat/stream_parser.h"

namespace deepinfer {

void StreamParser::enter(Stage stage) {
  stage_ = stage;
  searches_.assign(stages_[stage].transitions.size(), {});
  is_quiet_ = true;
  is_first_byte_ = true;
  sent_space_ = false;
  if (stage == Stage::kParameterName) parameter_name_.begin();
}

void StreamParser::read(std::string_view bytes, ByteOrigin origin, ChatEvents& out) {
  if (tracks_pieces_) {
    const Range noted{static_cast<int64_t>(num_noted_), static_cast<int64_t>(piece_logprobs_.size())};
    pieces_.push_back({bytes.size(), noted, 0});
    num_noted_ = piece_logprobs_.size();
  }
  size_t next = held_.size();  // first unread byte
  if (next > 0) held_ += bytes;
  const std::string_view data = next > 0 ? std::string_view(held_) : bytes;
  size_t begin = 0;  // first byte that has not been emitted
  while (next < data.size()) {
    if (stage_ == Stage::kParameterName) {
      next = begin = read_parameter_name(data, begin, out);
      continue;
    }
    const StageRules& rules = stages_[stage_];
    if (is_quiet_) {
      const size_t from = next;
      while (next < data.size() && !rules.is_live[static_cast<uint8_t>(data[next])]) ++next;
      is_first_byte_ &= next == from;
      if (next == data.size()) break;
    }
    size_t match_bytes = 0;
    const Transition* found = step(rules, static_cast<uint8_t>(data[next++]), origin, match_bytes);
    if (found == nullptr) continue;
    emit(rules.other, data.substr(begin, next - match_bytes - begin), out);
    enter(apply(*found, data.substr(next - match_bytes, match_bytes), out));
    begin = next;
    if (is_finished_) return;
  }
  const size_t num_open = stage_ == Stage::kParameterName ? 0 : num_open_bytes();
  emit(stages_[stage_].other, data.substr(begin, data.size() - num_open - begin), out);
  if (held_.empty()) {
    held_.assign(data.substr(data.size() - num_open));
  } else {
    held_.erase(0, held_.size() - num_open);
  }
}

// Every marker sees the byte; the first in order that is now complete is returned.
const Transition* StreamParser::step(const StageRules& rules, uint8_t byte, ByteOrigin origin, size_t& match_bytes) {
  const Transition* found = nullptr;
  is_quiet_ = true;
  for (size_t i = 0; i < rules.transitions.size(); ++i) {
    const Transition& transition = rules.transitions[i];
    if (transition.marker.kind() == Marker::Kind::kFirstByte) {
      if (found == nullptr && is_first_byte_ && transition.marker.meets(0, byte, origin)) {
        found = &transition;
        match_bytes = 1;
      }
      continue;
    }
    const bool is_complete = advance(transition.marker, searches_[i], byte, origin);
    is_quiet_ &= searches_[i].num_open() == 0;
    if (is_complete && found == nullptr) {
      found = &transition;
      match_bytes = searches_[i].num_open();
    }
    if (is_complete) break;  // the stage ends here, so the searches after it do not matter
  }
  is_first_byte_ = false;
  return found;
}

size_t StreamParser::num_open_bytes() const {
  size_t longest = 0;
  if (is_quiet_) return longest;
  for (const MarkerSearch& search : searches_) longest = std::max(longest, search.num_open());
  return longest;
}

size_t StreamParser::read_parameter_name(std::string_view data, size_t begin, ChatEvents& out) {
  scratch_.clear();
  auto outcome = ParameterName::Outcome::kReading;
  size_t next = begin;
  while (next < data.size() && outcome == ParameterName::Outcome::kReading) {
    outcome = parameter_name_.push(static_cast<uint8_t>(data[next++]), scratch_);
  }
  take_pieces(next - begin, nullptr);
  emit_argument(scratch_, out);
  if (outcome == ParameterName::Outcome::kName) enter(Stage::kParameterKind);
  if (outcome == ParameterName::Outcome::kNoKind) {
    emit_argument("\"", out);
    enter(Stage::kStringValue);
  }
  return next;
}

// What a met marker does; gives the stage that follows.
Stage StreamParser::apply(const Transition& transition, std::string_view match, ChatEvents& out) {
  begin_segment(transition.effect, true);
  switch (transition.effect) {
    case Effect::kText: emit_text(ChatEventKind::kText, match, out); return transition.next;
    case Effect::kStrayTag:
      stray_ += tag_text_;
      stray_ += match;
      tag_text_.clear();
      break;
    case Effect::kStopSequence:
      stop_sequence_ = options_.parsing.stop_sequences[transition.index];
      end(FinishReason::kStopSequence, out);
      break;
    case Effect::kBeginCall: begin_call(out); break;
    case Effect::kCloseAndBegin:
      close_arguments(out);
      begin_call(out);
      break;
    case Effect::kCallNamed: name_call(out); break;
    case Effect::kOpenArgument:
      emit_argument(has_arguments_ ? ", " : "{", out);
      has_arguments_ = true;
      tag_text_.clear();
      break;
    case Effect::kOpenRaw:
      if (has_arguments_) {
        stray_ += match;
        take_pieces(match.size(), nullptr);
        return stage_;
      }
      emit_argument(match, out);
      break;
    case Effect::kQuote: emit_argument("\"", out); break;
    case Effect::kEmptyString: emit_argument("\"\"", out); break;
    case Effect::kCloseArguments: close_arguments(out); break;
    case Effect::kTagEnd: tag_text_.clear(); break;
    default: break;
  }
  take_pieces(match.size(), nullptr);
  if (transition.next == Stage::kDone) flush_stray(out);
  return transition.next;
}

// What happens to bytes that are no marker.
void StreamParser::emit(Effect effect, std::string_view bytes, ChatEvents& out) {
  if (bytes.empty()) return;
  begin_segment(effect, false);
  switch (effect) {
    case Effect::kText: emit_text(ChatEventKind::kText, bytes, out); return;
    case Effect::kReasoning: emit_text(ChatEventKind::kReasoning, bytes, out); return;
    case Effect::kSpace: emit_spaces(bytes.size(), out); return;
    case Effect::kNameByte: name_ += bytes; break;
    case Effect::kArgument: emit_argument(bytes, out); break;
    case Effect::kEscapedArgument: emit_escaped(bytes, out); break;
    case Effect::kTagByte: tag_text_ += bytes; break;
    case Effect::kStray: stray_ += bytes; break;
    default: break;
  }
  take_pieces(bytes.size(), nullptr);
}

void StreamParser::emit_text(ChatEventKind kind, std::string_view bytes, ChatEvents& out) {
  out.add_text(kind, 0, bytes);
  take_pieces(bytes.size(), &out);
  if (kind != ChatEventKind::kReasoning) return;
  has_reasoning_ = true;
  if (options_.recipe_compatible) reasoning_ += bytes;
}

// The text around a JSON value. The original writes one space for each piece of it; ours writes one in all.
void StreamParser::emit_spaces(size_t num_bytes, ChatEvents& out) {
  if (!options_.recipe_compatible) {
    if (!sent_space_) out.add_text(ChatEventKind::kText, 0, " ");
    take_pieces(num_bytes, sent_space_ ? nullptr : &out);
    sent_space_ = true;
    return;
  }
  while (num_bytes > 0 && num_taken_pieces_ < pieces_.size()) {
    const Piece& piece = pieces_[num_taken_pieces_];
    const size_t used = std::min(num_bytes, piece.num_bytes);
    const bool is_new = piece.segment != segment_;
    if (is_new) out.add_text(ChatEventKind::kText, 0, " ");
    take_pieces(used, is_new ? &out : nullptr);
    num_bytes -= used;
  }
}

void StreamParser::emit_argument(std::string_view text, ChatEvents& out) {
  if (num_calls_ > 0) out.add_text(ChatEventKind::kToolArguments, num_calls_ - 1, text);
}

void StreamParser::emit_escaped(std::string_view bytes, ChatEvents& out) {
  const auto needs_escape = [](char c) { return needs_json_escape(static_cast<uint8_t>(c)); };
  if (std::none_of(bytes.begin(), bytes.end(), needs_escape)) {
    emit_argument(bytes, out);
    return;
  }
  scratch_.clear();
  append_json_escaped(scratch_, bytes);
  emit_argument(scratch_, out);
}

void StreamParser::begin_call(ChatEvents& out) {
  tag_text_.clear();
  flush_stray(out);
  name_.clear();
}

void StreamParser::name_call(ChatEvents& out) {
  call_id_.clear();
  const bool is_thinking_empty = options_.parsing.thinking_stage.has_value() && !has_reasoning_;
  append_call_id(call_id_, num_calls_, is_thinking_empty, call_id_rng_);
  out.add_call(num_calls_, name_, call_id_);
  ++num_calls_;
  has_arguments_ = false;
}

void StreamParser::close_arguments(ChatEvents& out) {
  emit_argument(has_arguments_ ? "}" : "{}", out);
  tag_text_.clear();
  flush_stray(out);
}

// Text that stood where only markup belongs.
void StreamParser::flush_stray(ChatEvents& out) {
  const bool is_blank = stray_.find_first_not_of(" \t\r\n") == std::string::npos;
  if (!is_blank) out.add_text(ChatEventKind::kText, 0, stray_);
  stray_.clear();
}

void StreamParser::note_logprobs(TokenId id, const PositionLogprobs& logprobs) {
  TokenLogprob noted{vocabulary_->tokenizer->token_bytes(id), logprobs.logprob, {}};
  noted.top.begin = static_cast<int64_t>(piece_top_.size());
  for (const IdLogprob& top : logprobs.top) {
    piece_top_.push_back({vocabulary_->tokenizer->token_bytes(top.id), top.logprob});
  }
  noted.top.end = static_cast<int64_t>(piece_top_.size());
  piece_logprobs_.push_back(noted);
}

// Text cut from one piece by markers is several segments. The original gives each of them the log probabilities of the
// whole piece; ours gives them once.
void StreamParser::begin_segment(Effect effect, bool is_marker) {
  const bool continues = segment_ > 0 && !is_marker && !is_marker_segment_ && effect == segment_effect_;
  if (!continues && (options_.recipe_compatible || segment_ == 0)) ++segment_;
  segment_effect_ = effect;
  is_marker_segment_ = is_marker;
}

// The next `num_bytes` of the stream were used up. With `out`, its last event gets the log probabilities of the pieces
// they came from, each piece once in a segment.
void StreamParser::take_pieces(size_t num_bytes, ChatEvents* out) {
  while (tracks_pieces_ && num_bytes > 0 && num_taken_pieces_ < pieces_.size()) {
    Piece& piece = pieces_[num_taken_pieces_];
    const bool is_given = out != nullptr && piece.segment != segment_;
    for (int64_t i = piece.logprobs.begin; is_given && i < piece.logprobs.end; ++i) {
      TokenLogprob copy = piece_logprobs_[static_cast<size_t>(i)];
      const auto top_begin = piece_top_.begin() + copy.top.begin;
      const auto top_end = piece_top_.begin() + copy.top.end;
      copy.top = {static_cast<int64_t>(out->top_logprobs.size()),
                  static_cast<int64_t>(out->top_logprobs.size()) + copy.top.size()};
      out->top_logprobs.insert(out->top_logprobs.end(), top_begin, top_end);
      out->logprobs.push_back(copy);
      out->list.back().logprobs.end = static_cast<int64_t>(out->logprobs.size());
    }
    if (is_given) piece.segment = segment_;
    const size_t used = std::min(num_bytes, piece.num_bytes);
    piece.num_bytes -= used;
    num_bytes -= used;
    if (piece.num_bytes == 0) ++num_taken_pieces_;
  }
  if (num_taken_pieces_ > 0 && num_taken_pieces_ == pieces_.size() && num_noted_ == piece_logprobs_.size()) {
    pieces_.clear();
    piece_logprobs_.clear();
    piece_top_.clear();
    num_taken_pieces_ = num_noted_ = 0;
  }
}

}  // namespace deepinfer
