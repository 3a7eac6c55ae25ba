// SPDX-License-Identifier: MIT
// Property: along any walk over tokens of a fixed set of grammars, a token's mask bit equals accept(), rollback
// restores the mask, and a state that does not accept allows some token. The input chooses the grammar and the tokens.
#include <string>

#include "base/check.h"
#include "grammar/answer_grammar.h"
#include "grammar/matcher.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

struct Fixed {
  std::shared_ptr<const TokenIndex> index = std::make_shared<const TokenIndex>(shared_released_tokenizer());
  std::vector<std::shared_ptr<Grammar>> grammars;

  Fixed() {
    const GrammarSource sources[] = {
        {GrammarSource::Kind::kJson, "", {}},
        {GrammarSource::Kind::kJsonSchema,
         R"({"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{"items":{"type":"number","minimum":3}}},"required":["b"]})",
         {}},
        {GrammarSource::Kind::kRegex, "([a-f]{2,9},? )*[0-9]+", {}},
        {GrammarSource::Kind::kEbnf, "root ::= root \"+\" [0-9]+ | \"(\" root \")\" | [a-z]{1,8}", {}}};
    for (const GrammarSource& source : sources) {
      auto grammar = Grammar::compile(source, index);
      CHECK(grammar.ok());
      grammars.push_back(*grammar);
    }
    grammars.push_back(calls_after_reasoning());
  }

  std::shared_ptr<Grammar> calls_after_reasoning() {
    AnswerSpec spec;
    spec.tools.resize(2);
    for (size_t i = 0; i < 2; ++i) {
      spec.tools[i].name = i == 0 ? "strict" : "loose";
      spec.tools[i].strict = i == 0;
      spec.tools[i].parameters =
          parse_json(R"({"type":"object","properties":{"s":{"type":"string","maxLength":30},"n":{"type":"number"}},)"
                     R"("required":["s","n"],"additionalProperties":false})")
              .value();
    }
    spec.requires_call = spec.starts_in_reasoning = true;
    const auto controls = ControlTokens::find(index->tokenizer(), PromptVersion::kV41);
    CHECK(controls.ok());
    auto grammar = compile_answer(spec, AnswerTokens::of(controls.value()), index, {});
    CHECK(grammar.ok());
    return *grammar;
  }
};

}  // namespace

int fuzz_token_walk(const uint8_t* data, size_t size) {
  static Fixed fixed;
  if (size < 3 || size > 400) return 0;
  Matcher matcher(fixed.grammars[data[0] % fixed.grammars.size()]);
  std::vector<uint32_t> row(fixed.index->num_words()), again(row);
  for (size_t i = 1; i + 1 < size; i += 2) {
    CHECK(matcher.fill_mask(row).ok());
    bool any = false;
    for (const uint32_t word : row) any |= word != 0;
    CHECK(any || matcher.is_accepting());
    // The token nearest to the input's choice that the mask allows, or the choice itself.
    auto token =
        static_cast<TokenId>((size_t{data[i]} << 8 | data[i + 1]) * 2 % static_cast<size_t>(fixed.index->vocab_size()));
    for (int tries = 0; tries < 4'000 && !is_allowed(row, token); ++tries)
      token = (token + 1) % static_cast<TokenId>(fixed.index->vocab_size());
    const bool moved = matcher.accept(token);
    CHECK(moved == is_allowed(row, token));
    if (!moved) continue;
    if (data[i] % 5 == 0) {
      matcher.rollback(1);
      CHECK(matcher.fill_mask(again).ok());
      CHECK(again == row);
    }
  }
  return 0;
}

}  // namespace deepinfer
