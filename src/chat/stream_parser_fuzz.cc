// SPDX-License-Identifier: MIT
// Arbitrary token ids and text through the stream parser. Properties: one start and one finish, in order; every piece
// of text is valid UTF-8; and, but for the original's way of counting steps, the same answer for every cut.
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "chat/stream_parser.h"

namespace deepinfer {
namespace {

const OutputVocabulary& vocabulary() {
  static const OutputVocabulary* loaded = [] {
    auto tokenizer = Tokenizer::load(std::string(DEEPINFER_TESTDATA) + "/codec/tokenizer_v41.json.gz");
    CHECK(tokenizer.ok());
    auto made = OutputVocabulary::create(tokenizer.value());
    CHECK(made.ok());
    return new OutputVocabulary(made.value());
  }();
  return *loaded;
}

constexpr std::string_view kPieces[] = {"<",
                                        "</",
                                        "｜DSML｜",
                                        "</think>",
                                        "<think>",
                                        " calls>\n",
                                        "tool_calls>",
                                        " invoke name=\"",
                                        "invoke name=\"f\">\n",
                                        " parameter name=\"",
                                        "parameter name=\"a\" string=\"true\">",
                                        "\" string=\"false\">",
                                        "true\">",
                                        "\"",
                                        " ",
                                        "\n",
                                        "\n\n",
                                        ">",
                                        "{",
                                        "}",
                                        "[1]",
                                        "```json\n",
                                        "\n```",
                                        "END",
                                        "E",
                                        "\\",
                                        "é",
                                        "🦀",
                                        "\uFFFD",
                                        "<｜User｜>",
                                        "<｜end▁of▁sentence｜>",
                                        " string=\"",
                                        "<｜ref｜>",
                                        " invoke>\n",
                                        " parameter>\n"};

// One byte names a piece or, with the next one, any id, unknown ones included.
std::vector<TokenId> ids_of(std::string_view data) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < data.size(); ++i) {
    const auto byte = static_cast<uint8_t>(data[i]);
    if (byte < 200) {
      const auto piece = vocabulary().tokenizer->encode_with_added(kPieces[byte % std::size(kPieces)]);
      ids.insert(ids.end(), piece.begin(), piece.end());
    } else if (i + 1 < data.size()) {
      ids.push_back(static_cast<TokenId>((byte - 200) * 256 + static_cast<uint8_t>(data[++i])) * 10);
    }
  }
  return ids;
}

StreamParserOptions options_of(uint8_t flags) {
  StreamParserOptions options;
  options.parsing.parse_tool_calls = (flags & 1) != 0;
  if ((flags & 2) != 0) options.parsing.thinking_stage = ThinkingStage::kReasoningStart;
  options.parsing.parse_json_output = (flags & 12) == 12;
  options.parsing.starts_in_tool_calls = (flags & 24) == 24;
  if ((flags & 32) != 0) options.parsing.stop_sequences = {"END", "\n\n\n", "<<"};
  options.recipe_compatible = (flags & 64) != 0;
  return options;
}

// The answer as one string; neighbouring pieces of a kind are one.
class Transcript {
 public:
  void take(const ChatEvents& events) {
    for (const ChatEvent& event : events.list) {
      CHECK(is_valid_utf8(events.text_of(event)));
      CHECK((event.kind == ChatEventKind::kStart) == (num_events_ == 0));
      CHECK(!has_finished_);
      ++num_events_;
      has_finished_ = event.kind == ChatEventKind::kFinish;
      const std::string head = std::string(to_string(event.kind)) + std::to_string(event.call_idx);
      if (head != last_ || event.kind == ChatEventKind::kToolCall) text_ += "\n" + head + ":";
      last_ = head;
      text_ += events.text_of(event);
      if (!has_finished_) continue;
      text_ += std::to_string(static_cast<int>(events.finish.reason)) + events.finish.stop_sequence + " " +
               std::to_string(events.usage.num_output_tokens) + " " + std::to_string(events.usage.num_reasoning_tokens);
    }
  }
  const std::string& text() const {
    CHECK(has_finished_);
    return text_;
  }

 private:
  std::string text_, last_;
  size_t num_events_ = 0;
  bool has_finished_ = false;
};

std::string read(const StreamParserOptions& options, std::span<const TokenId> ids, size_t step) {
  StreamParser parser(vocabulary(), options);
  Transcript transcript;
  ChatEvents events;
  for (size_t i = 0; i < ids.size(); i += step) {
    events.clear();
    CHECK(parser.push_tokens(ids.subspan(i, std::min(step, ids.size() - i)), {}, events).ok());
    transcript.take(events);
  }
  events.clear();
  parser.finish(BackendFinish::kStop, events);
  transcript.take(events);
  return transcript.text();
}

void read_text(const StreamParserOptions& options, std::string_view text, size_t step) {
  StreamParser parser(vocabulary(), options);
  Transcript transcript;
  ChatEvents events;
  for (size_t i = 0; i < text.size(); i += step) {
    events.clear();
    parser.push_text(text.substr(i, step), 1, events);
    transcript.take(events);
  }
  events.clear();
  parser.finish_without_reason(events);
  transcript.take(events);
  (void)transcript.text();
}

}  // namespace

int fuzz_stream_parser(const uint8_t* data, size_t size) {
  if (size < 2 || size > 2048) return 0;
  const StreamParserOptions options = options_of(data[0]);
  const size_t step = 1 + data[1] % 16;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::vector<TokenId> ids = ids_of(rest);
  const std::string whole = read(options, ids, ids.size() + 1);
  const std::string single = read(options, ids, 1);
  const std::string stepped = read(options, ids, step);
  if (!options.recipe_compatible) {
    CHECK(single == whole);
    CHECK(stepped == whole);
  }
  std::string spelled;
  for (const TokenId id : ids) spelled += vocabulary().tokenizer->token_bytes(id);
  read_text(options, spelled, step);
  read_text(options, rest, step);
  return 0;
}

}  // namespace deepinfer
