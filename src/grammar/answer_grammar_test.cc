// SPDX-License-Identifier: MIT
// Whole answers: reasoning, text, formats and tool calls, token by token, against texts written by hand and against the
// stream parser that reads such answers.
#include "grammar/answer_grammar.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "chat/output_vocabulary.h"
#include "chat/stream_parser.h"
#include "grammar/grammar_cache.h"
#include "grammar/matcher.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

const OutputVocabulary& vocabulary() {
  static const OutputVocabulary kVocabulary = OutputVocabulary::create(shared_released_tokenizer()).value();
  return kVocabulary;
}

std::shared_ptr<const TokenIndex> shared_index() {
  static const auto index = std::make_shared<const TokenIndex>(shared_released_tokenizer());
  return index;
}

const AnswerTokens& answer_tokens() {
  static const AnswerTokens kTokens = AnswerTokens::of(vocabulary().controls);
  return kTokens;
}

ToolDefinition tool(const std::string& name, const std::string& schema, bool strict = true) {
  ToolDefinition made;
  made.name = name;
  made.parameters = parse_json(schema).value();
  made.strict = strict;
  return made;
}

const char* kWeather =
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":9},)"
    R"("unit":{"type":["string","null"]}},"required":["city","days","unit"],"additionalProperties":false})";

std::shared_ptr<Grammar> compile(const AnswerSpec& spec) {
  auto grammar = compile_answer(spec, answer_tokens(), shared_index(), {});
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return grammar.ok() ? *grammar : nullptr;
}

// The answer whose control tokens are spelled in `text`, and whether it may end there.
bool accepts(const std::shared_ptr<Grammar>& grammar, const std::string& text) {
  Matcher matcher(grammar);
  for (const TokenId id : grammar->index().tokenizer().encode_with_added(text))
    if (!matcher.accept(id)) return false;
  return matcher.accept(answer_tokens().end);
}

const std::string kOpen = "\n\n<｜DSML｜ calls>\n", kClose = "</｜DSML｜ calls>";
const std::string kCall =
    "<｜DSML｜ invoke name=\"weather\">\n"
    "<｜DSML｜ parameter name=\"city\" string=\"true\">\"</p>\n\\x</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"unit\" string=\"false\">null</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n";

TEST(AnswerGrammar, StrictToolsInAuto) {
  AnswerSpec spec;
  spec.tools = {tool("weather", kWeather),
                tool("now", R"({"type":"object","properties":{},"additionalProperties":false})")};
  const auto grammar = compile(spec);
  EXPECT_TRUE(accepts(grammar, "Just text, with <angles> and </think without its id."));
  EXPECT_TRUE(accepts(grammar, ""));
  EXPECT_TRUE(accepts(grammar, "Let me see." + kOpen + kCall + kClose));
  EXPECT_TRUE(accepts(grammar, kOpen + kCall + kCall + kClose));
  EXPECT_TRUE(accepts(grammar, kOpen + "<｜DSML｜ invoke name=\"now\">\n\n</｜DSML｜ invoke>\n" + kClose));
  EXPECT_FALSE(accepts(grammar, kOpen + kClose)) << "no call";
  EXPECT_FALSE(accepts(grammar, kOpen + kCall)) << "not closed";
  EXPECT_FALSE(accepts(grammar, kOpen + kCall + kClose + " more"));
  EXPECT_FALSE(accepts(grammar, kOpen + "<｜DSML｜ invoke name=\"wether\">\n</｜DSML｜ invoke>\n" + kClose));
  std::string wrong = kCall;
  wrong.replace(wrong.find(">3<"), 3, ">10<");
  EXPECT_FALSE(accepts(grammar, kOpen + wrong + kClose)) << "beyond the maximum";
  wrong = kCall;
  wrong.replace(wrong.find("\"false\">null"), 12, "\"true\">C");
  EXPECT_TRUE(accepts(grammar, kOpen + wrong + kClose));
  spec.one_call = true;
  EXPECT_FALSE(accepts(compile(spec), kOpen + kCall + kCall + kClose));
  EXPECT_TRUE(accepts(compile(spec), kOpen + kCall + kClose));
}

TEST(AnswerGrammar, RequiredCallsAndWhereTheyBegin) {
  AnswerSpec spec;
  spec.tools = {tool("weather", kWeather)};
  spec.requires_call = true;
  EXPECT_FALSE(accepts(compile(spec), "text"));
  EXPECT_TRUE(accepts(compile(spec), kOpen + kCall + kClose));
  spec.starts_in_calls = true;
  EXPECT_TRUE(accepts(compile(spec), kCall + kClose));
  EXPECT_FALSE(accepts(compile(spec), kOpen + kCall + kClose));
  spec.starts_in_calls = false;
  spec.starts_in_reasoning = true;
  EXPECT_TRUE(accepts(compile(spec), "hm { \"x\n</think>" + kOpen + kCall + kClose));
  EXPECT_TRUE(accepts(compile(spec), "hm" + kOpen + kCall + kClose)) << "straight out of the reasoning";
  EXPECT_FALSE(accepts(compile(spec), "hm</think>"));
  EXPECT_FALSE(accepts(compile(spec), "hm</think>no call"));
}

TEST(AnswerGrammar, LooseToolsKeepTheMarkup) {
  AnswerSpec spec;
  spec.tools = {tool("weather", kWeather, false)};
  const auto grammar = compile(spec);
  EXPECT_TRUE(accepts(grammar, kOpen + "<｜DSML｜ invoke name=\"weather\">\n\n</｜DSML｜ invoke>\n" + kClose));
  EXPECT_TRUE(accepts(grammar, kOpen +
                                   "<｜DSML｜ invoke name=\"weather\">\n<｜DSML｜ parameter name=\"other one\" "
                                   "string=\"false\">{\"a\": [1, 2]}</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n" +
                                   kClose));
  EXPECT_FALSE(accepts(grammar, kOpen +
                                    "<｜DSML｜ invoke name=\"weather\">\n<｜DSML｜ parameter name=\"x\" "
                                    "string=\"false\">{\"a\": </｜DSML｜ parameter>\n</｜DSML｜ invoke>\n" +
                                    kClose));
}

TEST(AnswerGrammar, FormatsAfterReasoningAndBesideTools) {
  AnswerSpec spec;
  spec.content = GrammarSource{GrammarSource::Kind::kJsonSchema, R"({"type":"object","required":["a"]})", {}};
  spec.starts_in_reasoning = true;
  EXPECT_TRUE(accepts(compile(spec), "Think {} first.</think>{\"a\": 1}"));
  EXPECT_FALSE(accepts(compile(spec), "{\"a\": 1}")) << "still reasoning";
  EXPECT_FALSE(accepts(compile(spec), "x</think>{}"));
  spec.starts_in_reasoning = false;
  spec.tools = {tool("weather", kWeather)};
  EXPECT_TRUE(accepts(compile(spec), "{\"a\": 1}"));
  EXPECT_TRUE(accepts(compile(spec), kOpen + kCall + kClose));
  EXPECT_FALSE(accepts(compile(spec), "text" + kOpen + kCall + kClose));
}

// The way through the reasoning is open: what cannot come behind it must show before the first token.
TEST(AnswerGrammar, AFormThatNothingSatisfiesIsEmptyBehindReasoningToo) {
  using Kind = GrammarSource::Kind;
  const std::vector<GrammarSource> sources = {
      {Kind::kJsonSchema, "false", {}},
      {Kind::kJsonSchema, R"({"type":"object","properties":{"a":{"enum":[]}},"required":["a"]})", {}},
      {Kind::kJsonSchema, R"({"type":"integer","minimum":3,"maximum":2})", {}},
      {Kind::kRegex, "a^b", {}},
      {Kind::kEbnf, R"(root ::= root "a")", {}},
      {Kind::kEbnf,
       R"(root ::= "a" part
part ::= "b" part)",
       {}}};
  for (const GrammarSource& source : sources)
    for (const bool thinks : {false, true}) {
      AnswerSpec spec;
      spec.content = source;
      spec.starts_in_reasoning = thinks;
      EXPECT_TRUE(compile(spec)->is_empty()) << source.text << thinks;
      spec.tools = {tool("weather", kWeather)};  // a call still can
      EXPECT_FALSE(compile(spec)->is_empty()) << source.text << thinks;
    }
}

TEST(AnswerGrammar, ControlTokensOnlyWhereTheGrammarSaysSo) {
  AnswerSpec spec;
  spec.tools = {tool("weather", kWeather)};
  const auto grammar = compile(spec);
  std::vector<uint32_t> row(shared_index()->num_words());
  ASSERT_TRUE(Matcher(grammar).fill_mask(row).ok());
  const Tokenizer& tokenizer = *shared_released_tokenizer();
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_control(id) && is_allowed(row, id)) allowed.push_back(id);
  std::vector<TokenId> expected = answer_tokens().in_text;
  expected.push_back(answer_tokens().end);
  std::ranges::sort(expected);
  EXPECT_EQ(allowed, expected);
}

// A random answer without its end token. Control tokens are few; without help a walk would stay in one string.
void walk_at_random(const std::shared_ptr<Grammar>& grammar, Rng& rng, std::vector<TokenId>& ids) {
  std::vector<uint32_t> row(shared_index()->num_words());
  Matcher matcher(grammar);
  for (int64_t room = 150; !matcher.is_ended(); --room) {
    ASSERT_TRUE(grammar->fill_mask_within(matcher.state(), room, row).ok());
    std::vector<TokenId> allowed, controls;
    for (TokenId id = 0; id < static_cast<TokenId>(shared_index()->vocab_size()); ++id)
      if (is_allowed(row, id)) allowed.push_back(id);
    ASSERT_FALSE(allowed.empty());
    for (const TokenId id : allowed)
      if (shared_index()->tokenizer().is_control(id)) controls.push_back(id);
    const auto& from = !controls.empty() && rng.below(3) == 0 ? controls : allowed;
    ids.push_back(from[rng.below(from.size())]);
    ASSERT_TRUE(matcher.accept(ids.back()));
    ASSERT_GT(room, 0);
  }
  ids.pop_back();
}

// The arguments of the calls that the stream parser finds.
std::vector<std::string> arguments_read_from(const std::vector<TokenId>& ids) {
  StreamParserOptions options;
  options.parsing.parse_tool_calls = true;
  options.parsing.thinking_stage = ThinkingStage::kReasoningStart;
  StreamParser parser(vocabulary(), options);
  ChatEvents events;
  EXPECT_TRUE(parser.push_tokens(ids, {}, events).ok());
  parser.finish(BackendFinish::kStop, events);
  EXPECT_EQ(events.finish.reason, FinishReason::kToolCalls);
  std::vector<std::string> arguments;
  for (const ChatEvent& event : events.list) {
    if (event.kind == ChatEventKind::kToolCall) arguments.emplace_back();
    if (event.kind == ChatEventKind::kToolArguments) arguments.back() += events.text_of(event);
  }
  return arguments;
}

// Any walk that ends is read by the stream parser as the calls it spelled, with arguments that are JSON.
TEST(AnswerGrammar, RandomAnswersAreReadBack) {
  AnswerSpec spec;
  spec.tools = {
      tool("weather", kWeather),
      tool(
          "find",
          R"({"type":"object","properties":{"q":{"type":"string","enum":["a","b c"]},"n":{"type":"array","items":{"type":"integer","minimum":-9,"maximum":99}}},"required":["q","n"],"additionalProperties":false})")};
  spec.requires_call = true;
  spec.starts_in_reasoning = true;
  const auto grammar = compile(spec);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Rng rng(seed);
    std::vector<TokenId> ids;
    ASSERT_NO_FATAL_FAILURE(walk_at_random(grammar, rng, ids));
    const std::vector<std::string> arguments = arguments_read_from(ids);
    ASSERT_FALSE(arguments.empty());
    for (const std::string& text : arguments) {
      const auto json = parse_json(text, {.refuse_duplicate_keys = false, .wide_integers = true});
      ASSERT_TRUE(json.ok()) << text;
      const Json& call = json.value();
      EXPECT_TRUE(call.find("city") ? call.find("days")->is_integer() : call.find("n")->is_array()) << text;
    }
  }
}

TEST(AnswerGrammar, ForcedTokensGoThroughControlTokens) {
  AnswerSpec spec;
  spec.tools = {tool("weather", kWeather)};
  spec.starts_in_calls = true;
  spec.requires_call = true;
  const auto grammar = compile(spec);
  const std::vector<TokenId> forced = Matcher(grammar).forced_tokens(64);
  const std::vector<TokenId> all = shared_index()->tokenizer().encode_with_added(kCall);
  ASSERT_GT(forced.size(), 8u);
  EXPECT_TRUE(std::equal(forced.begin(), forced.end(), all.begin()));
}

TEST(AnswerGrammar, UnsupportedStrictToolNamesToolKeywordAndPath) {
  AnswerSpec spec;
  spec.tools = {
      tool("t", R"({"type":"object","properties":{"a":{"type":"string","pattern":"(x)\\1"}},"required":["a"]})")};
  const auto grammar = compile_answer(spec, answer_tokens(), shared_index(), {});
  ASSERT_FALSE(grammar.ok());
  for (const char* part : {"tool \"t\"", "pattern at #/properties/a"})
    EXPECT_NE(grammar.status().message().find(part), std::string::npos) << grammar.status().message();
}

TEST(GrammarCache, SharesWithinATenantKeepsFailuresAndForgetsTheOldest) {
  constexpr size_t kBytesMax = size_t{100} << 10;
  GrammarCache cache(shared_index(), answer_tokens(), kBytesMax);
  AnswerSpec spec;
  spec.content = GrammarSource{GrammarSource::Kind::kRegex, "a+", {}};
  auto first = cache.get("t", spec, {}), again = cache.get("t", spec, {}), other = cache.get("u", spec, {});
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  spec.content->text = "(";
  EXPECT_FALSE(cache.get("t", spec, {}).ok());
  EXPECT_FALSE(cache.get("t", spec, {}).ok());
  EXPECT_EQ(cache.stats().num_failed, 1);
  EXPECT_EQ(cache.stats().num_compiled, 2);
  EXPECT_EQ(cache.stats().num_hits, 2);
  for (int i = 0; i < 200; ++i) {
    spec.content->text = "b{" + std::to_string(i) + "}";
    EXPECT_TRUE(cache.get("t", spec, {}).ok());
  }
  EXPECT_GT(cache.stats().num_evicted, 0);
  EXPECT_LE(cache.stats().num_bytes, kBytesMax);
}

TEST(GrammarCache, ACompileThatIsGivenUpIsNotKept) {
  GrammarCache cache(shared_index(), answer_tokens(), size_t{1} << 20);
  AnswerSpec spec;
  std::string branches;
  for (int i = 0; i < 12; ++i)
    branches += (i ? "," : "") + std::string(R"({"properties":{"p)") + std::to_string(i) + R"(":{"type":"string"}}})";
  spec.content = GrammarSource{GrammarSource::Kind::kJsonSchema, R"({"type":"object","oneOf":[)" + branches + "]}", {}};
  GrammarOptions options;
  options.keep_going = [] { return false; };
  const auto stopped = cache.get("t", spec, options);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(cache.stats().num_entries, 0u);
}

}  // namespace
}  // namespace deepinfer
