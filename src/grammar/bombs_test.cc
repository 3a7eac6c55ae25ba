// SPDX-License-Identifier: MIT
// Sources made to hurt: each is compiled or refused with a reason, walked for a while, and stays within its memory.
#include <gtest/gtest.h>

#include <bit>

#include "base/philox.h"
#include "grammar/matcher.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

constexpr size_t kBytesMax = size_t{420} << 20;  // machine and masks

std::shared_ptr<const TokenIndex> shared_index() {
  static const auto index = std::make_shared<const TokenIndex>(shared_released_tokenizer());
  return index;
}

std::string repeated(std::string_view text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

// Walks at random until the grammar or a limit ends it. An error later on must have a message too.
void survive(GrammarSource::Kind kind, const std::string& text, int num_steps = 40) {
  SCOPED_TRACE(text.substr(0, 100));
  auto grammar = Grammar::compile({kind, text, {}}, shared_index(), {});
  if (!grammar.ok()) {
    EXPECT_FALSE(grammar.status().message().empty());
    return;
  }
  Matcher matcher(*grammar);
  Rng rng(1);
  std::vector<uint32_t> row(shared_index()->num_words());
  for (int i = 0; i < num_steps; ++i) {
    if (const Status filled = matcher.fill_mask(row); !filled.ok()) {
      EXPECT_EQ(filled.code(), StatusCode::kResourceExhausted);
      EXPECT_FALSE(filled.message().empty());
      break;
    }
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < static_cast<TokenId>(shared_index()->vocab_size()); ++id)
      if (is_allowed(row, id)) allowed.push_back(id);
    if (allowed.empty()) break;
    if (!matcher.accept(allowed[rng.below(allowed.size())])) {
      // Only a limit met while stepping may take back what the mask promised.
      EXPECT_EQ((*grammar)->fill_mask(matcher.state(), row).code(), StatusCode::kResourceExhausted);
      break;
    }
  }
  const Grammar::Size size = (*grammar)->size();
  EXPECT_LE(size.machine_bytes + size.mask_bytes, kBytesMax);
}

constexpr auto kSchema = GrammarSource::Kind::kJsonSchema;
constexpr auto kRegex = GrammarSource::Kind::kRegex;
constexpr auto kEbnf = GrammarSource::Kind::kEbnf;

TEST(Bombs, SchemasOfManyBytes) {
  std::string members;
  for (int i = 0; members.size() < (size_t{3} << 20); ++i)
    members +=
        (i ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"type":"string","maxLength":)" + std::to_string(i) + "}";
  survive(kSchema, R"({"type":"object","properties":{)" + members + "}}", 10);
  const std::string too_large = "{\"title\":\"" + std::string(size_t{4} << 20, 'x') + "\"}";
  const auto refused = Grammar::compile({kSchema, too_large, {}}, shared_index(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
}

TEST(Bombs, DeepNesting) {
  survive(kSchema, repeated(R"({"items":)", 10'000) + "true" + repeated("}", 10'000));
  survive(kSchema, repeated(R"({"items":)", 300) + "true" + repeated("}", 300), 400);
  survive(kSchema, repeated(R"({"not":)", 200) + "true" + repeated("}", 200));
  survive(kRegex, repeated("(", 10'000) + "a" + repeated(")", 10'000));
  survive(kEbnf, "root ::= " + repeated("(", 10'000) + "\"a\"" + repeated(")", 10'000));
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 10'000; ++i) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  survive(kEbnf, chain + "r10000 ::= \"a\"");
}

TEST(Bombs, RegularExpressions) {
  for (const char* pattern :
       {"(a*)*b", "(a|a)*c", "(a|aa)+$", "((a?){50}a{50})", "(.*a){30}", "(x+x+)+y", "[^a]*a.{1000}",
        "(a{1,1000}){1,1000}", "((((a{0,30}){0,30}){0,30}){0,30})", "(.{0,300}b){1,20}", "\\p{L}{1,500}\\p{Lu}{1,500}",
        "(.|[a-z]|\\w|\\d){0,4000000}", "a{4000000000}", "(a{3}|b{5}){1000000}c"})
    survive(kRegex, pattern);
}

TEST(Bombs, SchemasThatMultiply) {
  std::string branches;
  for (int i = 0; i < 24; ++i) {
    const std::string n = std::to_string(i);
    branches += (i ? "," : "") + (R"({"oneOf":[{"required":["a)" + n + R"("]},{"required":["b)" + n +
                                  R"("]},{"required":["c)" + n + R"("]}]})");
  }
  survive(kSchema, R"({"allOf":[)" + branches + "]}");
  survive(kSchema, R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"},{"properties":{"x":{"$ref":"#/$defs/a"}}}]},)"
                   R"("b":{"anyOf":[{"$ref":"#/$defs/c"},{"items":{"$ref":"#/$defs/a"}}]},"c":{"not":{"properties":)"
                   R"({"y":{"$ref":"#/$defs/a"}}}}},"$ref":"#/$defs/a"})");
  survive(kSchema,
          R"({"type":"array","minItems":1000000,"maxItems":4000000000,"items":{"type":"string","minLength":1000000}})");
  survive(
      kSchema,
      R"({"allOf":[{"pattern":"(a|b){0,100}c"},{"pattern":"(b|a){3,90}"},{"pattern":"^.{5,200}$"},{"not":{"pattern":"ab{2,50}"}}],"type":"string"})");
}

TEST(Bombs, AmbiguousRules) {
  survive(kEbnf, "root ::= root root | root root root | \"a\"", 8);
  survive(kEbnf, "root ::= (\"a\" | \"a\" | \"a\" root){0,200}", 8);
  survive(kEbnf, "root ::= a b c d\na ::= \"x\"*\nb ::= \"x\"*\nc ::= \"x\"* a\nd ::= (a | b | c){0,1000}", 8);
}

}  // namespace
}  // namespace deepinfer
