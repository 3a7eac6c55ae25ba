// SPDX-License-Identifier: MIT
#include "chat/stream_parser.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "base/utf8.h"
#include "chat/call_id.h"

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

StreamParserOptions options(bool thinking, bool tools, bool compatible) {
  StreamParserOptions out;
  out.parsing.parse_tool_calls = tools;
  if (thinking) out.parsing.thinking_stage = ThinkingStage::kReasoningStart;
  out.recipe_compatible = compatible;
  return out;
}

// What an answer said, in the order in which it said it: consecutive pieces of a kind are one.
struct Said {
  std::string text;  // describe() without start and finish
  FinishReason reason = FinishReason::kEndOfStream;
  std::string stop_sequence;
  Usage usage;
};

class Reader {
 public:
  explicit Reader(StreamParserOptions options) : parser_(vocabulary(), std::move(options)) {}

  ChatEvents& begin_step() {
    events_.clear();
    return events_;
  }
  void end_step() {
    for (const ChatEvent& event : events_.list) {
      if (event.kind == ChatEventKind::kStart) continue;
      if (event.kind == ChatEventKind::kFinish) {
        said_.reason = events_.finish.reason;
        said_.stop_sequence = events_.finish.stop_sequence;
        said_.usage = events_.usage;
        continue;
      }
      EXPECT_TRUE(is_valid_utf8(events_.text_of(event)));
      if (event.kind != last_ || event.kind == ChatEventKind::kToolCall || event.call_idx != last_call_) {
        if (!said_.text.empty()) said_.text += " | ";
        said_.text += to_string(event.kind) + std::string(" ");
      }
      last_ = event.kind;
      last_call_ = event.call_idx;
      said_.text += events_.text_of(event);
    }
  }
  void push_ids(std::span<const TokenId> ids) {
    EXPECT_TRUE(parser_.push_tokens(ids, {}, begin_step()).ok());
    end_step();
  }
  void push_text(std::string_view text) {
    parser_.push_text(text, 1, begin_step());
    end_step();
  }
  Said finish(BackendFinish reason) {
    parser_.finish(reason, begin_step());
    end_step();
    return said_;
  }

 private:
  StreamParser parser_;
  ChatEvents events_;
  Said said_;
  ChatEventKind last_ = ChatEventKind::kFinish;
  uint32_t last_call_ = 0;
};

std::vector<TokenId> ids_of(std::string_view output) { return vocabulary().tokenizer->encode_with_added(output); }

Said read_ids(StreamParserOptions options, std::string_view output, BackendFinish reason = BackendFinish::kStop) {
  Reader reader(std::move(options));
  reader.push_ids(ids_of(output));
  return reader.finish(reason);
}

Said read_text(StreamParserOptions options, std::string_view output, BackendFinish reason = BackendFinish::kStop) {
  Reader reader(std::move(options));
  reader.push_text(output);
  return reader.finish(reason);
}

const std::string kCallF =
    "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>\n</｜DSML｜ "
    "invoke>\n";
std::string block(const std::string& calls) { return "<｜DSML｜ calls>\n" + calls + "</｜DSML｜ calls>"; }

// The vectors of chat.md 4.2, by their numbers there.
TEST(StreamParser, ReadsTheSpecificationsVectors) {
  const auto thinking = [](bool tools) { return options(true, tools, true); };
  const auto plain = [](bool tools) { return options(false, tools, true); };
  EXPECT_EQ(read_ids(thinking(false), "\n\nI think\n</think>\n\nAnswer").text, "reasoning I think | text Answer");  // 1
  EXPECT_EQ(read_ids(thinking(true), "hmm\n\n" + block(kCallF)).text,
            "reasoning hmm | tool_call f | tool_arguments {\"a\": \"x\"}");                 // 2
  EXPECT_EQ(read_text(plain(true), "Use <｜DSML｜ tags, please. Rest").text, "text Use ");  // 3
  EXPECT_EQ(read_ids(plain(false), "Use <｜DSML｜ tags").text, "text Use <｜DSML｜ tags");  // 4
  EXPECT_EQ(read_ids(plain(true), block("<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n")).text,
            "tool_call f | tool_arguments {}");  // 12
  EXPECT_EQ(
      read_ids(plain(true), "text\n\n" + block(kCallF + kCallF) + "\nafter").text,
      "text text | tool_call f | tool_arguments {\"a\": \"x\"} | tool_call f | tool_arguments {\"a\": \"x\"}");  // 18
  EXPECT_EQ(read_ids(plain(false), "a</think>b").text, "text ab");                                               // 19
  EXPECT_EQ(read_ids(thinking(false), "abc \n </think>x").text, "reasoning abc \n  | text x");                   // 20
  EXPECT_EQ(read_ids(plain(true), kCallF).text, "tool_call f | tool_arguments {\"a\": \"x\"}");                  // 21
  EXPECT_EQ(read_ids(plain(true), block(kCallF) + block(kCallF)).text,
            "tool_call f | tool_arguments {\"a\": \"x\"}");                               // 24
  EXPECT_EQ(read_ids(plain(false), "<think>abc</think>def").text, "text <think>abcdef");  // 25
}

TEST(StreamParser, StopSequencesEndTheAnswerAtTheFirstToComplete) {
  const auto with_stops = [](std::vector<std::string> stops, bool thinking) {
    StreamParserOptions out = options(thinking, false, false);
    out.parsing.stop_sequences = std::move(stops);
    return out;
  };
  const Said end = read_ids(with_stops({"END"}, false), "abc END def");  // 8
  EXPECT_EQ(end.text, "text abc ");
  EXPECT_EQ(end.reason, FinishReason::kStopSequence);
  EXPECT_EQ(end.stop_sequence, "END");
  EXPECT_EQ(read_ids(with_stops({"END"}, true), "x END y</think>z END w").text, "reasoning x END y | text z ");  // 9
  EXPECT_EQ(read_ids(with_stops({"ab", "abc"}, false), "xxabcd").stop_sequence, "ab");                           // 10
  EXPECT_EQ(read_ids(with_stops({"\n"}, false), "\n\nfoo").text, "");                                            // 11
}

TEST(StreamParser, FinishReasonsFollowTheBackendUnlessCallsWereMade) {
  const std::string cut =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">abc";
  EXPECT_EQ(read_ids(options(false, true, false), cut).text, "tool_call f | tool_arguments {\"a\": \"abc");  // 14
  EXPECT_EQ(read_ids(options(false, true, false), cut).reason, FinishReason::kToolCalls);
  EXPECT_EQ(read_ids(options(false, true, false), cut, BackendFinish::kLength).reason, FinishReason::kLength);
  EXPECT_EQ(read_ids(options(false, true, false), cut, BackendFinish::kContentFilter).reason,
            FinishReason::kContentFilter);
  const Said in_name = read_ids(options(false, true, false), "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_w");  // 15
  EXPECT_EQ(in_name.text, "");
  EXPECT_EQ(in_name.reason, FinishReason::kStop);
}

TEST(StreamParser, ParameterNamesAreKeptWholeAndEscaped) {
  const auto arguments = [](const std::string& name) {
    const std::string parameter = "<｜DSML｜ parameter name=\"" + name + "\" string=\"true\">v</｜DSML｜ parameter>\n";
    std::string texts;
    for (const bool compatible : {true, false}) {
      const Said said = read_ids(options(false, true, compatible),
                                 block("<｜DSML｜ invoke name=\"f\">\n" + parameter + "</｜DSML｜ invoke>\n"));
      texts += said.text.substr(std::string("tool_call f | tool_arguments ").size()) + ";";
    }
    return texts;
  };
  EXPECT_EQ(arguments("shipping address"), "{\"shipping address\": \"v\"};{\"shipping address\": \"v\"};");  // 27
  EXPECT_EQ(arguments(" string= mode "), "{\" string= mode \": \"v\"};{\" string= mode \": \"v\"};");
  EXPECT_EQ(arguments(""), "{\"\": \"v\"};{\"\": \"v\"};");
  EXPECT_EQ(arguments("a\\b"), "{\"a\\\\b\": \"v\"};{\"a\\\\b\": \"v\"};");
  EXPECT_EQ(arguments("a\nb"), "{\"a\\nb\": \"v\"};{\"a\\nb\": \"v\"};");
  EXPECT_EQ(arguments("say \"hi\""), "{\"say \\\"hi\\\"\": \"v\"};{\"say \\\"hi\\\"\": \"v\"};");
}

TEST(StreamParser, SpelledMarkupIsTextWhenIdsAreKnown) {
  Reader reader(options(true, true, false));
  const auto plain = vocabulary().tokenizer->encode("a</think>b" + block(kCallF));
  reader.push_ids(plain);
  EXPECT_EQ(reader.finish(BackendFinish::kStop).text, "reasoning a</think>b" + block(kCallF));
}

// Markup the original reads wrongly or drops text from; every case ends with the text and a finish reason.
TEST(StreamParser, MalformedCallsLoseNoText) {
  const auto read = [](const std::string& output) { return read_ids(options(false, true, false), output).text; };
  const std::string f = "tool_call f | tool_arguments {\"a\": \"x\"}";
  EXPECT_EQ(read("Use <｜DSML｜ tags, please. Rest"), "text Use  tags, please. Rest");
  EXPECT_EQ(read("<｜DSML｜toolcall>Read\n"), "text Read\n");
  EXPECT_EQ(read("<｜DSML｜ calls>\nLet me look.\n" + kCallF + "</｜DSML｜ calls>"), "text \nLet me look. | " + f);
  // No attribute: a string.
  EXPECT_EQ(
      read(block(
          "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n")),
      f);
  EXPECT_EQ(read(block("<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=true>x</｜DSML｜ "
                       "parameter>\n</｜DSML｜ invoke>\n")),
            f);
  EXPECT_EQ(
      read(block(
          "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=a>x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n")),
      f);
  // A call that is not closed does not swallow its neighbour.
  EXPECT_EQ(
      read(block(
          "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>\n" +
          kCallF)),
      f + " | " + f);
  EXPECT_EQ(
      read(block(
          "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>\n")),
      f);  // 13
  // A JSON object in place of parameters.
  EXPECT_EQ(read(block("<｜DSML｜ invoke name=\"f\">\n{\"a\": [1]}\n</｜DSML｜ invoke>\n")),
            "tool_call f | tool_arguments {\"a\": [1]}");
  EXPECT_EQ(read(block("<｜DSML｜ invoke name=\"f\">\nthe text\n</｜DSML｜ invoke>\n")),
            "tool_call f | tool_arguments {} | text \nthe text");
  // Cut off: markup is never shown.
  EXPECT_EQ(read("ok\n\n<｜DSML｜ cal"), "text ok");
  EXPECT_EQ(read("ok\n\n<｜DSML｜ calls>\n<｜DSML｜ inv"), "text ok");
  EXPECT_EQ(read("ok\n\n<｜DSML｜"), "text ok");
}

TEST(StreamParser, AnotherTurnEndsTheAnswer) {
  const Said said = read_ids(options(false, false, false), "hello<｜User｜>and then");
  EXPECT_EQ(said.text, "text hello");
  EXPECT_EQ(said.reason, FinishReason::kStop);
  EXPECT_EQ(read_ids(options(true, false, false), "<think>a</think>b<｜end▁of▁sentence｜>c").text,
            "reasoning a | text b");
  EXPECT_EQ(read_ids(options(false, false, false), "<｜ref｜>cat<｜/ref｜>").text, "text <｜ref｜>cat<｜/ref｜>");
  StreamParserOptions past_end = options(false, false, false);
  past_end.ignore_end_of_sentence = true;
  EXPECT_EQ(read_ids(past_end, "a<｜end▁of▁sentence｜>b").text, "text ab");
}

TEST(StreamParser, CodePointsAreNeverSplitAndNeverDelayed) {
  const auto crab = vocabulary().tokenizer->encode("a🦀b");  // the crab is several tokens
  Reader reader(options(false, false, false));
  for (const TokenId id : crab) reader.push_ids({&id, 1});
  EXPECT_EQ(reader.finish(BackendFinish::kStop).text, "text a🦀b");
  const auto replacement = vocabulary().tokenizer->encode("a\uFFFD");
  Reader valid(options(false, false, true));
  valid.push_ids(replacement);
  EXPECT_EQ(valid.finish(BackendFinish::kStop).text, "text a\uFFFD");
}

TEST(StreamParser, CountsOutputReasoningAndPromptTokens) {
  Reader reader(options(true, false, false));
  reader.push_ids(ids_of("one two three</think>four"));
  const Said said = reader.finish(BackendFinish::kStop);
  EXPECT_EQ(said.usage.num_reasoning_tokens, ids_of("one two three").size());
  EXPECT_EQ(said.usage.num_output_tokens, ids_of("one two three</think>four").size());
}

TEST(StreamParser, AWrongNumberOfLogprobsEndsTheStreamWithoutFinish) {
  StreamParser parser(vocabulary(), options(false, false, false));
  ChatEvents events;
  const std::vector<TokenId> ids = {19923, 3};
  const std::vector<PositionLogprobs> logprobs(1);
  const Status status = parser.push_tokens(ids, logprobs, events);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(parser.is_finished());
  parser.finish(BackendFinish::kStop, events);
  EXPECT_TRUE(events.list.empty());
}

TEST(CallId, CarriesIndexMarkAndChecksum) {
  for (const char* id : {"call_00_0Y2NtI7IqeHlApxdEReh5004", "call_01_A5kvoza15BL0GIg6qyQF9734",
                         "call_00_ET_XQq6oLJoA4k3yvyhWHFO2493", "call_02_ET_J8vafnPUCimWJEydfw6Q5861"}) {
    EXPECT_TRUE(has_call_id_checksum(id)) << id;
    EXPECT_EQ(has_empty_thinking_mark(id), std::string_view(id).find("_ET_") != std::string_view::npos) << id;
  }
  EXPECT_TRUE(has_empty_thinking_mark("call00ETXQq6oLJoA4k3yvyhWHFO2493"));
  EXPECT_FALSE(has_call_id_checksum("call_00_0Y2NtI7IqeHlApxdEReh5005"));
  Rng rng(7);
  std::string id;
  append_call_id(id, 12, true, rng);
  EXPECT_EQ(id.size(), 8u + 3 + 24);
  EXPECT_TRUE(id.starts_with("call_12_ET_"));
  EXPECT_TRUE(has_call_id_checksum(id));
  std::string next;
  append_call_id(next, 12, true, rng);
  EXPECT_NE(id, next);
}

}  // namespace
}  // namespace deepinfer
