// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "grammar/ebnf_tree.h"
#include "grammar/regex_pool.h"

namespace deepinfer {
namespace ebnf {

EbnfNode sequence(std::vector<EbnfNode> parts) {
  if (parts.size() == 1) return parts[0];
  auto tree = std::make_shared<EbnfTree>();
  tree->kind = EbnfTree::Kind::kSequence;
  tree->parts = std::move(parts);
  return tree;
}

EbnfNode either(std::vector<EbnfNode> parts) {
  if (parts.size() == 1) return parts[0];
  auto tree = std::make_shared<EbnfTree>();
  tree->kind = EbnfTree::Kind::kEither;
  tree->parts = std::move(parts);
  return tree;
}

EbnfNode repeat(EbnfNode part, uint32_t min, uint32_t max) {
  if (min == 1 && max == 1) return part;
  auto tree = std::make_shared<EbnfTree>();
  tree->kind = EbnfTree::Kind::kRepeat;
  tree->parts = {std::move(part)};
  tree->min = min;
  tree->max = max;
  return tree;
}

EbnfNode rule(size_t index) {
  auto tree = std::make_shared<EbnfTree>();
  tree->kind = EbnfTree::Kind::kRule;
  tree->rule = index;
  return tree;
}

}  // namespace ebnf

namespace {

bool is_name(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class EbnfParser {
 public:
  EbnfParser(std::u32string text, const EbnfLimits& limits) : text_(std::move(text)), limits_(limits) {}

  Result<EbnfRules> parse() {
    skip();
    while (at_ < text_.size()) {
      const size_t start = at_;
      const std::string name = take_name();
      skip();
      if (name.empty() || !take(U"::=")) return error(start, "expected a rule: name ::= expression");
      const size_t index = rule_of(name);
      if (rules_.bodies[index] != nullptr) return error(start, fmt::format("rule \"{}\" is defined twice", name));
      skip();
      ASSIGN_OR_RETURN(rules_.bodies[index], either(0));
    }
    for (size_t i = 0; i < rules_.names.size(); ++i)
      if (rules_.bodies[i] == nullptr)
        return error(first_use_[i], fmt::format("rule \"{}\" is not defined", rules_.names[i]));
    const auto root = known_.find("root");
    if (root == known_.end()) return invalid_argument("ebnf: no rule \"root\"");
    rules_.root = root->second;
    return std::move(rules_);
  }

 private:
  Status error(size_t at, const std::string& what) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      }
    }
    return invalid_argument(fmt::format("ebnf line {} column {}: {}", line, column, what));
  }

  void skip() {
    while (at_ < text_.size()) {
      const char32_t c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++at_;
      } else {
        return;
      }
    }
  }

  bool take(std::u32string_view s) {
    if (!std::u32string_view(text_).substr(at_).starts_with(s)) return false;
    at_ += s.size();
    return true;
  }

  std::string take_name() {
    std::string name;
    while (at_ < text_.size() && is_name(text_[at_])) name.push_back(static_cast<char>(text_[at_++]));
    return name;
  }

  size_t rule_of(const std::string& name) {
    const auto [known, is_new] = known_.emplace(name, rules_.names.size());
    if (is_new) {
      rules_.names.push_back(name);
      rules_.bodies.emplace_back();
      first_use_.push_back(at_ - name.size());
    }
    return known->second;
  }

  // A name followed by ::= begins the next rule.
  bool at_rule() {
    const size_t start = at_;
    const bool is_rule = !take_name().empty() && (skip(), take(U"::="));
    at_ = start;
    return is_rule;
  }

  Result<EbnfNode> either(int depth) {
    if (depth > limits_.depth_max) return error(at_, "groups nested too deeply");
    std::vector<EbnfNode> ways;
    do {
      skip();
      ASSIGN_OR_RETURN(EbnfNode way, sequence(depth));
      ways.push_back(std::move(way));
    } while (take(U"|"));
    return ebnf::either(std::move(ways));
  }

  Result<EbnfNode> sequence(int depth) {
    std::vector<EbnfNode> items;
    while (true) {
      skip();
      if (at_ >= text_.size() || text_[at_] == '|' || text_[at_] == ')') break;
      if (is_name(text_[at_]) && at_rule()) break;
      if (++num_nodes_ > limits_.nodes_max) return resource_exhausted("ebnf: larger than the limit");
      ASSIGN_OR_RETURN(EbnfNode one, item(depth));
      ASSIGN_OR_RETURN(one, repeated(std::move(one)));
      items.push_back(std::move(one));
    }
    return ebnf::sequence(std::move(items));
  }

  Result<EbnfNode> item(int depth) {
    const size_t start = at_;
    if (take(U"\"")) return literal(start);
    if (take(U"[")) return char_class(start);
    if (take(U"(")) {
      ASSIGN_OR_RETURN(EbnfNode inside, either(depth + 1));
      skip();
      if (!take(U")")) return error(start, "missing ')'");
      return inside;
    }
    auto tree = std::make_shared<EbnfTree>();
    if (take(U".")) {
      tree->kind = EbnfTree::Kind::kChars;
      tree->chars = CharSet::all();
      return EbnfNode(tree);
    }
    const std::string name = take_name();
    if (name.empty()) return error(start, "expected a literal, a class, a group or a rule name");
    return ebnf::rule(rule_of(name));
  }

  Result<EbnfNode> repeated(EbnfNode one) {
    while (at_ < text_.size()) {
      uint32_t min = 0, max = RegexPool::kInfinite;
      const size_t start = at_;
      if (take(U"*")) {
      } else if (take(U"+")) {
        min = 1;
      } else if (take(U"?")) {
        max = 1;
      } else if (take(U"{")) {
        TRY(counts(start, min, max));
      } else {
        break;
      }
      one = ebnf::repeat(std::move(one), min, max);
    }
    return one;
  }

  Status counts(size_t start, uint32_t& min, uint32_t& max) {
    const auto number = [&](uint32_t& value) {
      skip();
      const size_t first = at_;
      uint64_t sum = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        sum = std::min<uint64_t>(sum * 10 + (text_[at_] - '0'), uint64_t{1} << 31);
      value = static_cast<uint32_t>(sum);
      const bool found = at_ > first;
      skip();
      return found;
    };
    if (!number(min)) min = 0;
    max = min;
    if (take(U",") && !number(max)) max = RegexPool::kInfinite;
    if (!take(U"}")) return error(start, "expected {m}, {m,} or {m,n}");
    if (min > limits_.count_max || (max != RegexPool::kInfinite && max > limits_.count_max))
      return error(start, fmt::format("a count beyond {}", limits_.count_max));
    if (max < min) return error(start, "counts out of order");
    return {};
  }

  Result<char32_t> character(size_t start) {
    if (at_ >= text_.size() || text_[at_] == '\n') return error(start, "the line ends inside a literal or class");
    const char32_t c = text_[at_++];
    if (c != '\\') return c;
    if (at_ >= text_.size()) return error(start, "nothing after '\\'");
    const char32_t e = text_[at_++];
    switch (e) {
      case 'n': return U'\n';
      case 'r': return U'\r';
      case 't': return U'\t';
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      default: break;
    }
    if (is_name(e) && e != '-') return error(at_ - 1, "unknown escape");
    return e;
  }

  Result<char32_t> hex(int num_digits) {
    uint32_t value = 0;
    for (int i = 0; i < num_digits; ++i) {
      const char32_t c = at_ < text_.size() ? text_[at_++] : U' ';
      const uint32_t digit = c >= '0' && c <= '9'                 ? c - '0'
                             : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                                  : 16;
      if (digit == 16) return error(at_, fmt::format("expected {} hexadecimal digits", num_digits));
      value = value * 16 + digit;
    }
    if (value >= CharSet::kEnd || (value >= 0xD800 && value < 0xE000)) return error(at_, "not a code point");
    return static_cast<char32_t>(value);
  }

  Result<EbnfNode> literal(size_t start) {
    auto tree = std::make_shared<EbnfTree>();
    tree->kind = EbnfTree::Kind::kText;
    while (!take(U"\"")) {
      ASSIGN_OR_RETURN(const char32_t c, character(start));
      tree->text.push_back(c);
    }
    return EbnfNode(tree);
  }

  Result<EbnfNode> char_class(size_t start) {
    auto tree = std::make_shared<EbnfTree>();
    tree->kind = EbnfTree::Kind::kChars;
    const bool is_complement = take(U"^");
    std::vector<CharSet::Span> spans;
    while (!take(U"]")) {
      ASSIGN_OR_RETURN(const char32_t low, character(start));
      char32_t high = low;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        ASSIGN_OR_RETURN(high, character(start));
      }
      if (high < low) return error(start, "range out of order");
      spans.push_back({low, high + 1});
    }
    tree->chars = CharSet::of_sorted(std::move(spans));
    if (is_complement) tree->chars = tree->chars.complement();
    return EbnfNode(tree);
  }

  const std::u32string text_;
  const EbnfLimits& limits_;
  size_t at_ = 0, num_nodes_ = 0;
  EbnfRules rules_;
  std::map<std::string, size_t> known_;
  std::vector<size_t> first_use_;
};

}  // namespace

Result<EbnfRules> parse_ebnf(std::string_view text, const EbnfLimits& limits) {
  std::u32string points;
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    if (c.num_bytes == 0) return invalid_argument("ebnf: not valid UTF-8");
    points.push_back(c.value);
    text.remove_prefix(c.num_bytes);
  }
  return EbnfParser(std::move(points), limits).parse();
}

}  // namespace deepinfer
