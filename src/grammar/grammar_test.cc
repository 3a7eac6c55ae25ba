// SPDX-License-Identifier: MIT
// Masks against accept(), matchers against themselves: soundness and completeness of every bit, rollback, forks,
// several positions at once, shortest completions, limits.
#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <string>

#include "base/philox.h"
#include "grammar/matcher.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

std::shared_ptr<const TokenIndex> shared_index() {
  static const auto index = std::make_shared<const TokenIndex>(shared_released_tokenizer());
  return index;
}

std::shared_ptr<Grammar> compile(GrammarSource::Kind kind, const std::string& text, GrammarOptions options = {}) {
  auto grammar = Grammar::compile({kind, text, {}}, shared_index(), options);
  EXPECT_TRUE(grammar.ok()) << text << ": " << (grammar.ok() ? "" : grammar.status().message());
  return grammar.ok() ? *grammar : nullptr;
}

struct Case {
  GrammarSource::Kind kind;
  const char* text;
};
constexpr auto kSchema = GrammarSource::Kind::kJsonSchema;
constexpr auto kRegex = GrammarSource::Kind::kRegex;
constexpr auto kEbnf = GrammarSource::Kind::kEbnf;
const Case kCases[] = {
    {GrammarSource::Kind::kJson, ""},
    {kSchema, R"({"type":"string","maxLength":40})"},
    {kSchema, R"({"type":"string","minLength":3,"maxLength":7})"},
    {kSchema, R"({"type":"string","pattern":"^[a-z]+-[0-9]{2,}$","maxLength":30})"},
    {kSchema,
     R"({"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"enum":["a","bc"]}}},"required":["name"],"additionalProperties":{"type":"integer","minimum":-5,"maximum":1000}})"},
    {kSchema, R"({"anyOf":[{"type":"string"},{"type":"string","maxLength":3},{"type":"number"}]})"},
    {kSchema, R"({"type":"array","items":{"type":"string","format":"date-time"},"minItems":1,"maxItems":3})"},
    {kSchema, R"({"type":"object","patternProperties":{"^x":{"type":"boolean"}},"maxProperties":2})"},
    // Keys of both kinds may not come: some tokens hold both words.
    {kSchema, R"({"type":"object","patternProperties":{"the":{"type":"string"},"in":{"type":"integer"}}})"},
    {kSchema, R"({"type":"string","oneOf":[{"pattern":"er"},{"pattern":"in"},{"pattern":"_[0-9]"}]})"},
    {kSchema, R"({"type":"string","not":{"pattern":"on|[0-9]x|^the"}})"},
    {kSchema,
     R"({"type":"string","allOf":[{"pattern":"bitmap"},{"pattern":"^(?:\\S+\\s+){0,3}\\S+$"}],"maxLength":30})"},
    {kSchema, R"({"type":"number","multipleOf":0.25,"minimum":-3,"maximum":250})"},
    {kSchema, R"({"type":"integer","multipleOf":7,"exclusiveMinimum":0})"},
    {kRegex, "(yes|no|maybe)( [a-z]{1,20}){0,5}"},
    {kRegex, ".{0,50}\\p{Lu}.{3}"},
    {kEbnf, "root ::= expr\nexpr ::= expr [-+] term | term\nterm ::= [0-9]+ | \"(\" expr \")\""},
    {kEbnf, "root ::= \"<\" [a-z]+ \">\" (root | [^<>]{0,30}) \"</\" [a-z]+ \">\""},
};

// One random allowed token; -1 when none is.
TokenId random_token(Rng& rng, std::span<const uint32_t> row) {
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < static_cast<TokenId>(row.size() * 32); ++id)
    if (is_allowed(row, id)) allowed.push_back(id);
  return allowed.empty() ? -1 : allowed[rng.below(allowed.size())];
}

TEST(Grammar, EveryMaskBitEqualsAccept) {
  const Tokenizer& tokenizer = released_tokenizer();
  Rng rng(3);
  std::vector<uint32_t> row(shared_index()->num_words());
  for (const Case& c : kCases) {
    for (const bool flexible : {true, false}) {
      GrammarOptions options;
      options.flexible_space = flexible;
      const auto grammar = compile(c.kind, c.text, options);
      Matcher matcher(grammar);
      for (int step = 0; step < 6; ++step) {
        ASSERT_TRUE(matcher.fill_mask(row).ok());
        for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
          const bool fits = !tokenizer.is_control(id) && !tokenizer.token_bytes(id).empty() &&
                            grammar->step(matcher.state(), id) != Machine::kDead;
          ASSERT_EQ(is_allowed(row, id), fits) << c.text << " step " << step << " token " << tokenizer.token_bytes(id);
        }
        const TokenId token = random_token(rng, row);
        if (token < 0) break;
        ASSERT_TRUE(matcher.accept(token));
      }
    }
  }
}

TEST(Grammar, WalksNeverGetStuckAndCompletionsComplete) {
  Rng rng(5);
  std::vector<uint32_t> row(shared_index()->num_words());
  for (const Case& c : kCases) {
    const auto grammar = compile(c.kind, c.text);
    for (int walk = 0; walk < 4; ++walk) {
      Matcher matcher(grammar);
      for (int step = 0; step < 12; ++step) {
        ASSERT_TRUE(matcher.fill_mask(row).ok());
        const TokenId token = random_token(rng, row);
        if (token < 0) {
          ASSERT_TRUE(matcher.is_accepting()) << c.text;
          break;
        }
        ASSERT_TRUE(matcher.accept(token));
      }
      const auto rest = matcher.shortest_completion();
      ASSERT_TRUE(rest.has_value()) << c.text;
      EXPECT_TRUE(grammar->is_accepting(grammar->step_bytes(matcher.state(), *rest))) << c.text << ": " << *rest;
    }
  }
}

TEST(Matcher, RollbackForksAndSeveralPositionsEqualStepByStep) {
  Rng rng(9);
  const size_t num_words = shared_index()->num_words();
  for (const Case& c : kCases) {
    const auto grammar = compile(c.kind, c.text);
    Matcher matcher(grammar);
    std::vector<std::vector<uint32_t>> rows;
    std::vector<TokenId> tokens;
    for (int step = 0; step < 8; ++step) {
      rows.emplace_back(num_words);
      ASSERT_TRUE(matcher.fill_mask(rows.back()).ok());
      const TokenId token = random_token(rng, rows.back());
      if (token < 0) break;
      tokens.push_back(token);
      ASSERT_TRUE(matcher.accept(token));
    }
    Matcher fresh(compile(c.kind, c.text));  // other ids, same masks
    TokenMasks masks(static_cast<int64_t>(tokens.size() + 1), shared_index()->vocab_size());
    auto num_rows = fresh.fill_masks(tokens, masks, 0);
    ASSERT_TRUE(num_rows.ok());
    ASSERT_EQ(*num_rows, tokens.size() + 1);
    for (size_t i = 0; i < rows.size(); ++i)
      ASSERT_TRUE(std::ranges::equal(masks.row(static_cast<int64_t>(i)), rows[i])) << c.text << " row " << i;
    Matcher fork = matcher;
    fork.rollback(fork.num_tokens());
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::vector<uint32_t> row(num_words);
      ASSERT_TRUE(fork.fill_mask(row).ok());
      ASSERT_EQ(row, rows[i]);
      ASSERT_TRUE(fork.accept(tokens[i]));
    }
    EXPECT_EQ(fork.state(), matcher.state());
  }
}

TEST(Matcher, EndIdsOnlyWhereTheTextMayEnd) {
  GrammarOptions options;
  options.end_ids = {1};
  Matcher matcher(compile(kRegex, "ab?", options));
  std::vector<uint32_t> row(shared_index()->num_words());
  ASSERT_TRUE(matcher.fill_mask(row).ok());
  EXPECT_FALSE(is_allowed(row, 1));
  EXPECT_FALSE(matcher.accept(1));
  ASSERT_TRUE(matcher.accept(released_tokenizer().encode("a")[0]));
  ASSERT_TRUE(matcher.fill_mask(row).ok());
  EXPECT_TRUE(is_allowed(row, 1));
  ASSERT_TRUE(matcher.accept(1));
  EXPECT_TRUE(matcher.is_ended());
  EXPECT_FALSE(matcher.accept(1));
  matcher.rollback(1);
  EXPECT_TRUE(matcher.is_accepting());
}

TEST(Matcher, ForcedTokensAreTheOnesThatCome) {
  Matcher matcher(compile(
      kSchema, R"({"properties":{"a_rather_long_member_name_of_an_object":{"const":"only this value is possible here"}},
    "required":["a_rather_long_member_name_of_an_object"],"additionalProperties":false,"type":"object"})",
      [] {
        GrammarOptions o;
        o.flexible_space = false;
        return o;
      }()));
  const std::vector<TokenId> forced = matcher.forced_tokens();
  EXPECT_GT(forced.size(), 5u);
  for (const TokenId token : forced) EXPECT_TRUE(matcher.accept(token));
}

TEST(Grammar, LimitsAnswer) {
  GrammarOptions options;
  EXPECT_EQ(Grammar::compile({kSchema, std::string(5 << 20, ' '), {}}, shared_index()).status().code(),
            StatusCode::kResourceExhausted);
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += R"({"items":)";
  EXPECT_FALSE(Grammar::compile({kSchema, deep + "{}" + std::string(10'000, '}'), {}}, shared_index()).ok());
  EXPECT_FALSE(
      Grammar::compile({kRegex, std::string(10'000, '(') + std::string(10'000, ')'), {}}, shared_index()).ok());
  const auto hard = compile(kRegex, "(a|aa)*b(a|b){0,1000}[ab]{30}c");
  Matcher matcher(hard);
  std::vector<uint32_t> row(shared_index()->num_words());
  for (int i = 0; i < 200; ++i)
    if (!matcher.accept(released_tokenizer().encode("b")[0])) break;
  const Status status = matcher.fill_mask(row);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace deepinfer
