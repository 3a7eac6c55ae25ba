// SPDX-License-Identifier: MIT
// Every bit of the masks of random states of random languages against reference_grammar.h. The disabled test does it
// for 200 languages and every token; scripts/test_grammar runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <set>

#include "base/philox.h"
#include "grammar/matcher.h"
#include "grammar/reference_grammar.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

struct Language {
  GrammarSource source;
  ReferenceGrammar reference;
};

// A random expression as EBNF or as a regular expression, and as reference rules.
class ExpressionMaker {
 public:
  ExpressionMaker(uint64_t seed, bool is_ebnf) : rng_(seed), is_ebnf_(is_ebnf) {}

  Language make() {
    if (!is_ebnf_) {
      language_.reference.start = node(4);
      language_.source = {GrammarSource::Kind::kRegex, text_, {}};
      return std::move(language_);
    }
    for (size_t i = 0; i < 1 + rng_.below(3); ++i) rules_.push_back(language_.reference.add_rule());
    std::string all;
    for (size_t i = 0; i < rules_.size(); ++i) {
      const int base = leaf();
      std::string line = (i == 0 ? "root" : "r" + std::to_string(i)) + " ::= " + text_;
      language_.reference.add(rules_[i], {ReferenceGrammar::call(base)});
      can_call_ = true;
      for (size_t k = 0; k < 1 + rng_.below(2); ++k) {
        const int way = node(3);
        line += " | " + text_;
        language_.reference.add(rules_[i], {ReferenceGrammar::call(way)});
      }
      can_call_ = false;
      all += line + "\n";
    }
    language_.reference.start = rules_[0];
    language_.source = {GrammarSource::Kind::kEbnf, all, {}};
    return std::move(language_);
  }

 private:
  // Each gives a reference rule and leaves its spelling in text_.
  int node(int depth) {
    const uint64_t kind = depth == 0 ? 0 : rng_.below(can_call_ ? 6 : 5);
    if (kind == 5) {
      const size_t rule = rng_.below(rules_.size());
      text_ = rule == 0 ? "root" : "r" + std::to_string(rule);
      return rules_[rule];
    }
    if (kind <= 1) return leaf();
    if (kind == 4) {
      const int part = node(depth - 1);
      const int min = static_cast<int>(rng_.below(3)), extra = static_cast<int>(rng_.below(3));
      const bool endless = rng_.below(3) == 0;
      text_ = "(" + text_ + "){" + std::to_string(min) + "," + (endless ? "" : std::to_string(min + extra)) + "}";
      return language_.reference.repeat(part, min, endless ? -1 : min + extra);
    }
    std::vector<int> parts;
    std::string spelled = "(";
    const size_t num_parts = 2 + rng_.below(2);
    for (size_t i = 0; i < num_parts; ++i) {
      parts.push_back(node(depth - 1));
      spelled += (i == 0 ? "" : kind == 2 ? " " : "|") + text_;
    }
    text_ = spelled + ")";
    if (!is_ebnf_ && kind == 2) text_.erase(std::remove(text_.begin(), text_.end(), ' '), text_.end());
    return kind == 2 ? language_.reference.sequence(parts) : language_.reference.choice(parts);
  }

  int leaf() {
    static const std::vector<std::string> kTexts = {"a", "b", "the", "in", "0",   "12", "xy", "é",  "日", "日本",
                                                    "-", "_", "er",  "A",  "ing", "th", "=",  "on", "ß",  "C"};
    if (rng_.below(3) != 0) {
      const std::string& chosen = kTexts[rng_.below(kTexts.size())];
      text_ = is_ebnf_ ? "\"" + chosen + "\"" : chosen;
      return language_.reference.literal(chosen);
    }
    const int rule = language_.reference.add_rule();
    static const std::vector<std::pair<char, char>> kRanges = {{'a', 'z'}, {'A', 'F'}, {'0', '9'}, {'s', 't'}};
    const auto [begin, end] = kRanges[rng_.below(kRanges.size())];
    language_.reference.add(rule, {{-1, static_cast<uint8_t>(begin), static_cast<uint8_t>(end)}});
    text_ = std::string("[") + begin + "-" + end;
    if (rng_.below(4) == 0) {
      language_.reference.add(rule, {ReferenceGrammar::call(language_.reference.wide_char())});
      text_ += is_ebnf_ ? "\\u0080-\\U0010FFFF" : "\\x{80}-\\x{10FFFF}";
    }
    text_ += "]";
    return rule;
  }

  Rng rng_;
  bool is_ebnf_, can_call_ = false;
  Language language_;
  std::vector<int> rules_;
  std::string text_;
};

// A random schema and the JSON texts it admits without white space, members in the schema's order.
class SchemaMaker {
 public:
  explicit SchemaMaker(uint64_t seed) : rng_(seed) {}

  Language make() {
    language_.reference.start = value(3);
    language_.source = {GrammarSource::Kind::kJsonSchema, text_, {}};
    return std::move(language_);
  }

 private:
  ReferenceGrammar& reference() { return language_.reference; }

  int value(int depth) {
    switch (rng_.below(depth == 0 ? 4 : 7)) {
      case 0:
        text_ = R"({"type":"boolean"})";
        return reference().choice({reference().literal("true"), reference().literal("false")});
      case 1: text_ = R"({"type":"null"})"; return reference().literal("null");
      case 2: return enumeration();
      case 3: return string();
      case 4: return array(depth);
      case 5: {
        const int a = value(depth - 1);
        const std::string first = text_;
        const int b = value(depth - 1);
        text_ = R"({"anyOf":[)" + first + "," + text_ + "]}";
        return reference().choice({a, b});
      }
      default: return object(depth);
    }
  }

  int enumeration() {
    static const std::vector<std::string> kWords = {"red", "green", "re", "north", "the", "a", "é", "日本語"};
    std::vector<int> ways;
    std::set<size_t> chosen;
    for (size_t i = 0; i < 1 + rng_.below(4); ++i) chosen.insert(rng_.below(kWords.size()));
    text_ = R"({"enum":[)";
    for (const size_t word : chosen) {
      text_ += (ways.empty() ? "\"" : ",\"") + kWords[word] + "\"";
      ways.push_back(reference().literal("\"" + kWords[word] + "\""));
    }
    text_ += "]}";
    return reference().choice(ways);
  }

  int string() {
    const int min = static_cast<int>(rng_.below(3));
    const int max = rng_.below(2) == 0 ? -1 : min + static_cast<int>(rng_.below(6));
    text_ = R"({"type":"string","minLength":)" + std::to_string(min) +
            (max < 0 ? "" : R"(,"maxLength":)" + std::to_string(max)) + "}";
    const int quote = reference().literal("\"");
    return reference().sequence({quote, reference().repeat(string_char(), min, max), quote});
  }

  // RFC 8259, where only what must be escaped is.
  int string_char() {
    if (string_char_ >= 0) return string_char_;
    string_char_ = reference().add_rule();
    for (const auto& [begin, end] : {std::pair<int, int>{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7F}})
      reference().add(string_char_, {{-1, static_cast<uint8_t>(begin), static_cast<uint8_t>(end)}});
    reference().add(string_char_, {ReferenceGrammar::call(reference().wide_char())});
    for (const char c : {'"', '\\', 'b', 'f', 'n', 'r', 't'})
      reference().add(string_char_, ReferenceGrammar::bytes(std::string("\\") + c));
    const int hex = reference().add_rule();
    for (const auto& [begin, end] : {std::pair<char, char>{'0', '9'}, {'a', 'f'}, {'A', 'F'}})
      reference().add(hex, {{-1, static_cast<uint8_t>(begin), static_cast<uint8_t>(end)}});
    ReferenceGrammar::Production control = ReferenceGrammar::bytes("\\u00");
    control.push_back({-1, '0', '1'});
    control.push_back(ReferenceGrammar::call(hex));
    reference().add(string_char_, std::move(control));
    return string_char_;
  }

  int array(int depth) {
    const int item = value(depth - 1);
    const int min = static_cast<int>(rng_.below(3)),
              max = rng_.below(2) == 0 ? -1 : min + static_cast<int>(rng_.below(3));
    text_ = R"({"type":"array","items":)" + text_ + R"(,"minItems":)" + std::to_string(min) +
            (max < 0 ? "" : R"(,"maxItems":)" + std::to_string(max)) + "}";
    const int more = reference().sequence({reference().literal(","), item});
    std::vector<int> ways;
    if (min == 0) ways.push_back(reference().literal("[]"));
    if (max != 0)
      ways.push_back(reference().sequence({reference().literal("["), item,
                                           reference().repeat(more, std::max(min - 1, 0), max < 0 ? -1 : max - 1),
                                           reference().literal("]")}));
    return reference().choice(ways);
  }

  int object(int depth) {
    static const std::vector<std::string> kNames = {"a", "ab", "name", "na", "x-y", "é"};
    struct Member {
      std::string name;
      int value;
      bool required;
    };
    std::vector<Member> members;
    std::string properties, required;
    for (const std::string& name : kNames) {
      if (rng_.below(3) == 0) continue;
      const int made = value(depth - 1);
      members.push_back({name, made, rng_.below(2) == 0});
      properties += (properties.empty() ? "\"" : ",\"") + name + "\":" + text_;
      if (members.back().required) required += (required.empty() ? "\"" : ",\"") + name + "\"";
    }
    text_ = R"({"type":"object","properties":{)" + properties + R"(},"required":[)" + required +
            R"(],"additionalProperties":false})";
    // [i][any]: the members from i on, when some came before or none.
    std::vector<std::array<int, 2>> rest(members.size() + 1);
    rest[members.size()] = {reference().literal(""), reference().literal("")};
    for (size_t i = members.size(); i-- > 0;) {
      for (int any = 0; any < 2; ++any) {
        const int key = reference().literal((any ? ",\"" : "\"") + members[i].name + "\":");
        std::vector<int> ways{reference().sequence({key, members[i].value, rest[i + 1][1]})};
        if (!members[i].required) ways.push_back(rest[i + 1][static_cast<size_t>(any)]);
        rest[i][static_cast<size_t>(any)] = reference().choice(ways);
      }
    }
    return reference().sequence({reference().literal("{"), rest[0][0], reference().literal("}")});
  }

  Rng rng_;
  Language language_;
  std::string text_;
  int string_char_ = -1;
};

class BruteForce {
 public:
  BruteForce() {
    const Tokenizer& tokenizer = released_tokenizer();
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
      if (!tokenizer.is_control(id) && !tokenizer.token_bytes(id).empty())
        sorted_.emplace_back(tokenizer.token_bytes(id), id);
    std::ranges::sort(sorted_);
  }

  // `stride`: of masks that allow much every so many tokens is looked at.
  void check(uint64_t seed, int num_states, size_t stride) {
    Language language = seed % 3 == 0   ? SchemaMaker(seed).make()
                        : seed % 3 == 1 ? ExpressionMaker(seed, true).make()
                                        : ExpressionMaker(seed, false).make();
    GrammarOptions options;
    options.flexible_space = false;
    auto grammar = Grammar::compile(language.source, index_, options);
    ASSERT_TRUE(grammar.ok()) << language.source.text << ": " << grammar.status().message();
    Matcher matcher(*grammar);
    ReferenceRecogniser reference(language.reference);
    Rng rng(seed, 1);
    std::vector<uint32_t> row(index_->num_words());
    std::string walked;
    ++num_languages_;
    for (int i = 0; i < num_states; ++i) {
      ASSERT_TRUE(matcher.fill_mask(row).ok());
      ++num_states_;
      ASSERT_EQ(matcher.is_accepting(), reference.accepts()) << language.source.text << " after " << walked;
      compare(row, reference, stride, rng.below(stride), language.source.text + " after " + walked);
      if (testing::Test::HasFailure()) return;
      std::vector<TokenId> allowed;
      for (const auto& [bytes, id] : sorted_)
        if (is_allowed(row, id)) allowed.push_back(id);
      if (allowed.empty()) return;
      const TokenId token = allowed[rng.below(allowed.size())];
      ASSERT_TRUE(matcher.accept(token));
      for (const char c : released_tokenizer().token_bytes(token)) ASSERT_TRUE(reference.push(static_cast<uint8_t>(c)));
      walked += released_tokenizer().token_bytes(token);
    }
  }

  // What has been compared so far.
  std::string done() const {
    return fmt::format("{} languages, {} states, {} token bits", num_languages_, num_states_, num_bits_);
  }

 private:
  void compare(const std::vector<uint32_t>& row, ReferenceRecogniser& reference, size_t stride, size_t first,
               const std::string& where) {
    size_t num_allowed = 0;
    for (const uint32_t word : row) num_allowed += static_cast<size_t>(std::popcount(word));
    const bool is_sampled = stride > 1 && num_allowed > 2'000;
    const size_t base = reference.num_bytes();
    std::string path, dead;  // bytes pushed; a prefix that fails
    for (size_t i = 0; i < sorted_.size(); ++i) {
      const auto& [bytes, id] = sorted_[i];
      if (is_sampled && i % stride != first) continue;
      ++num_bits_;
      bool fits = dead.empty() || !bytes.starts_with(dead);
      if (fits) {
        size_t common = 0;
        while (common < path.size() && common < bytes.size() && path[common] == bytes[common]) ++common;
        while (reference.num_bytes() > base + common) reference.pop();
        path.resize(common);
        for (size_t k = common; k < bytes.size() && fits; ++k) {
          fits = reference.push(static_cast<uint8_t>(bytes[k]));
          if (fits) path.push_back(bytes[k]);
          else dead = bytes.substr(0, k + 1);
        }
      }
      if (is_allowed(row, id) == fits) continue;
      ADD_FAILURE() << where << ": token \"" << bytes << "\" is " << (fits ? "refused" : "allowed");
      break;
    }
    while (reference.num_bytes() > base) reference.pop();
  }

  std::shared_ptr<const TokenIndex> index_ = std::make_shared<const TokenIndex>(shared_released_tokenizer());
  std::vector<std::pair<std::string, TokenId>> sorted_;
  uint64_t num_languages_ = 0, num_states_ = 0, num_bits_ = 0;
};

TEST(BruteForce, SomeLanguages) {
  BruteForce brute_force;
  for (uint64_t seed = 0; seed < 18 && !HasFailure(); ++seed) brute_force.check(seed, 3, 1024);
}

TEST(BruteForce, DISABLED_TwoHundredLanguagesEveryToken) {
  BruteForce brute_force;
  for (uint64_t seed = 0; seed < 200 && !HasFailure(); ++seed) {
    brute_force.check(seed, 6, 1);
    fmt::print(stderr, "{}\n", brute_force.done());
  }
  fmt::print("compared: {}, {} wrong\n", brute_force.done(), HasFailure() ? "at least one" : "none");
}

}  // namespace
}  // namespace deepinfer
