// SPDX-License-Identifier: MIT
#include "grammar/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "grammar/regex_tree.h"

namespace deepinfer {
namespace {

using Kind = RegexTree::Kind;

class Parser {
 public:
  Parser(std::u32string_view text, RegexDialect dialect, const RegexLimits& limits)
      : text_(text), dialect_(dialect), limits_(limits) {}

  Result<RegexTree> parse() {
    ASSIGN_OR_RETURN(RegexTree tree, either(0));
    if (at_ < text_.size()) return error("unmatched ')'");
    return tree;
  }

 private:
  Status error(std::string_view what) const { return invalid_argument(fmt::format("pattern at {}: {}", at_, what)); }
  Status outside(std::string_view what) const { return unimplemented(fmt::format("pattern at {}: {}", at_, what)); }
  bool more() const { return at_ < text_.size(); }
  bool next_is(std::u32string_view s) const { return text_.substr(at_).starts_with(s); }
  bool take(std::u32string_view s) {
    if (!next_is(s)) return false;
    at_ += s.size();
    return true;
  }

  RegexTree leaf(CharSet set) const {
    RegexTree tree{Kind::kChars};
    tree.chars = ignore_case_ ? set.case_folded() : std::move(set);
    return tree;
  }
  static RegexTree group(Kind kind, std::vector<RegexTree> parts) {
    RegexTree tree{kind};
    tree.has_assertion = kind >= Kind::kBegin || std::ranges::any_of(parts, &RegexTree::has_assertion);
    tree.parts = std::move(parts);
    return tree;
  }

  Result<RegexTree> either(int depth) {
    if (depth > limits_.depth_max) return outside("groups nested too deeply");
    const bool outer_case = ignore_case_;
    std::vector<RegexTree> ways;
    do {
      std::vector<RegexTree> items;
      while (more() && text_[at_] != '|' && text_[at_] != ')') TRY(item(depth, items));
      ways.push_back(group(Kind::kSequence, std::move(items)));
    } while (take(U"|"));
    ignore_case_ = outer_case;
    return ways.size() == 1 ? std::move(ways[0]) : group(Kind::kEither, std::move(ways));
  }

  Status item(int depth, std::vector<RegexTree>& items) {
    const size_t offset = at_;
    const char32_t c = text_[at_];
    RegexTree tree;
    bool can_repeat = true;
    if (c == '^' || c == '$') {
      ++at_;
      tree = group(c == '^' ? Kind::kBegin : Kind::kEnd, {});
      can_repeat = false;
    } else if (c == '(') {
      ASSIGN_OR_RETURN(tree, parenthesis(depth));
      can_repeat = tree.kind != Kind::kAhead && tree.kind != Kind::kNotAhead;
    } else if (c == '[') {
      ++at_;
      ASSIGN_OR_RETURN(CharSet set, bracket());
      tree = leaf(std::move(set));
    } else if (c == '.') {
      ++at_;
      CharSet breaks = CharSet::of('\n');
      if (dialect_ == RegexDialect::kEcma) {
        breaks.add(CharSet::of('\r'));
        breaks.add(0x2028, 0x202A);
      }
      tree = leaf(dot_all_ ? CharSet::all() : breaks.complement());
    } else if (c == '\\') {
      if (take(U"\\A") || take(U"\\z")) {
        if (dialect_ == RegexDialect::kEcma) return error("\\A and \\z are not part of the syntax");
        tree = group(text_[at_ - 1] == 'A' ? Kind::kBegin : Kind::kEnd, {});
        can_repeat = false;
      } else {
        ASSIGN_OR_RETURN(CharSet set, escape(false));
        tree = leaf(std::move(set));
      }
    } else if (c == '*' || c == '+' || c == '?') {
      return error("nothing to repeat");
    } else {
      ++at_;
      tree = leaf(CharSet::of(c));
    }
    tree.offset = offset;
    return quantifier(std::move(tree), can_repeat, items);
  }

  Status quantifier(RegexTree tree, bool can_repeat, std::vector<RegexTree>& items) {
    uint32_t min = 1, max = 1;
    const size_t start = at_;
    if (take(U"*")) {
      min = 0, max = RegexPool::kInfinite;
    } else if (take(U"+")) {
      max = RegexPool::kInfinite;
    } else if (take(U"?")) {
      min = 0;
    } else if (next_is(U"{")) {
      TRY(braces(min, max));
    }
    if (at_ == start) {
      items.push_back(std::move(tree));
      return {};
    }
    if (!can_repeat) return outside("a repeated anchor");
    take(U"?");  // how much is taken does not change what matches
    if (next_is(U"*") || next_is(U"+") || next_is(U"?")) return error("nothing to repeat");
    RegexTree repeat = group(Kind::kRepeat, {});
    repeat.offset = tree.offset;
    repeat.has_assertion = tree.has_assertion;
    repeat.min = min;
    repeat.max = max;
    repeat.parts.push_back(std::move(tree));
    items.push_back(std::move(repeat));
    return {};
  }

  // {m}, {m,}, {m,n}; anything else is an ordinary brace and nothing is taken.
  Status braces(uint32_t& min, uint32_t& max) {
    size_t i = at_ + 1;
    const auto number = [&](uint32_t& value) {
      const size_t first = i;
      uint64_t sum = 0;
      for (; i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; ++i)
        sum = std::min<uint64_t>(sum * 10 + (text_[i] - '0'), uint64_t{1} << 31);
      value = static_cast<uint32_t>(sum);
      return i > first;
    };
    uint32_t low = 0, high = 0;
    const auto literal = [&] {  // taken as a character by the caller's next item
      return Status();
    };
    if (!number(low)) return literal();
    high = low;
    if (i < text_.size() && text_[i] == ',') {
      ++i;
      if (!number(high)) high = RegexPool::kInfinite;
    }
    if (i >= text_.size() || text_[i] != '}') return literal();
    if (low > limits_.count_max || (high != RegexPool::kInfinite && high > limits_.count_max))
      return outside(fmt::format("a count beyond {}", limits_.count_max));
    if (high < low) return error("counts out of order");
    at_ = i + 1;
    min = low;
    max = high;
    return {};
  }

  Result<RegexTree> parenthesis(int depth) {
    ++at_;
    Kind kind = Kind::kSequence;
    const bool outer_case = ignore_case_, outer_dot = dot_all_;
    if (take(U"?")) {
      if (take(U"=")) {
        kind = Kind::kAhead;
      } else if (take(U"!")) {
        kind = Kind::kNotAhead;
      } else if (next_is(U"<=") || next_is(U"<!")) {
        return outside("look-behind is not supported");
      } else if (take(U"<") || take(U"P<")) {
        while (more() && text_[at_] != '>') ++at_;
        if (!take(U">")) return error("group name without '>'");
      } else if (!take(U":")) {
        TRY(flags());
        if (take(U")")) return group(Kind::kSequence, {});
        if (!take(U":")) return error("expected ':' or ')' after the flags of a group");
      }
    }
    if (kind != Kind::kSequence && dialect_ == RegexDialect::kRe2) return outside("look-around is not supported");
    ASSIGN_OR_RETURN(RegexTree inside, either(depth + 1));
    if (!take(U")")) return error("missing ')'");
    if (kind == Kind::kSequence) {
      ignore_case_ = outer_case;
      dot_all_ = outer_dot;
      return inside;
    }
    std::vector<RegexTree> parts;
    parts.push_back(std::move(inside));
    return group(kind, std::move(parts));
  }

  Status flags() {
    bool on = true;
    for (; more() && text_[at_] != ':' && text_[at_] != ')'; ++at_) {
      switch (text_[at_]) {
        case '-': on = false; break;
        case 'i': ignore_case_ = on; break;
        case 's': dot_all_ = on; break;
        default: return outside("this flag of a group is not supported");
      }
    }
    return {};
  }

  Result<CharSet> bracket() {
    const bool is_complement = take(U"^");
    CharSet set;
    bool first = true;
    while (true) {
      if (!more()) return error("missing ']'");
      if (text_[at_] == ']' && !(first && dialect_ == RegexDialect::kRe2)) break;
      first = false;
      if (dialect_ == RegexDialect::kRe2 && next_is(U"[:")) {
        TRY(posix_class(set));
        continue;
      }
      ASSIGN_OR_RETURN(const CharSet low, bracket_member());
      const bool is_range = next_is(U"-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!is_range || !is_single(low)) {
        set.add(low);
        continue;
      }
      ++at_;
      ASSIGN_OR_RETURN(const CharSet high, bracket_member());
      if (!is_single(high)) {  // [a-\d]: the hyphen stands for itself
        set.add(low);
        set.add(CharSet::of('-'));
        set.add(high);
        continue;
      }
      if (high.spans()[0].begin < low.spans()[0].begin) return error("range out of order");
      set.add(low.spans()[0].begin, high.spans()[0].end);
    }
    ++at_;
    if (ignore_case_) set = set.case_folded();
    return is_complement ? set.complement() : set;
  }

  static bool is_single(const CharSet& set) {
    return set.spans().size() == 1 && set.spans()[0].end == set.spans()[0].begin + 1;
  }

  Result<CharSet> bracket_member() {
    if (text_[at_] == '\\') return escape(true);
    return CharSet::of(text_[at_++]);
  }

  Status posix_class(CharSet& set) {
    struct Named {
      std::u32string_view name;
      std::vector<CharSet::Span> spans;
    };
    static const std::vector<Named> kNamed = {{U"[:alnum:]", {{'0', ':'}, {'A', '['}, {'a', '{'}}},
                                              {U"[:alpha:]", {{'A', '['}, {'a', '{'}}},
                                              {U"[:digit:]", {{'0', ':'}}},
                                              {U"[:lower:]", {{'a', '{'}}},
                                              {U"[:upper:]", {{'A', '['}}},
                                              {U"[:space:]", {{'\t', 14}, {' ', '!'}}},
                                              {U"[:punct:]", {{'!', '0'}, {':', 'A'}, {'[', 'a'}, {'{', 127}}},
                                              {U"[:word:]", {{'0', ':'}, {'A', '['}, {'_', '`'}, {'a', '{'}}},
                                              {U"[:xdigit:]", {{'0', ':'}, {'A', 'G'}, {'a', 'g'}}}};
    for (const Named& named : kNamed) {
      if (!take(named.name)) continue;
      for (const CharSet::Span& span : named.spans) set.add(span.begin, span.end);
      return {};
    }
    return error("unknown class [:name:]");
  }

  Result<CharSet> hex(size_t digits_min, size_t digits_max) {
    uint32_t value = 0;
    size_t count = 0;
    for (; count < digits_max && more(); ++count, ++at_) {
      const char32_t c = text_[at_];
      const uint32_t digit = c >= '0' && c <= '9'   ? c - '0'
                             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                    : 16;
      if (digit == 16) break;
      value = value * 16 + digit;
    }
    if (count < digits_min || value >= CharSet::kEnd) return error("expected hexadecimal digits of a code point");
    return CharSet::of(value);
  }

  Result<CharSet> unicode_escape() {
    if (take(U"{")) {
      ASSIGN_OR_RETURN(CharSet set, hex(1, 6));
      if (!take(U"}")) return error("missing '}'");
      return set;
    }
    const size_t start = at_;
    if (at_ + 4 <= text_.size() && (text_[at_] == 'd' || text_[at_] == 'D') && at_ + 10 <= text_.size() &&
        text_[at_ + 4] == '\\' && text_[at_ + 5] == 'u') {
      const auto value = [&](size_t from) {
        uint32_t v = 0;
        for (size_t i = from; i < from + 4; ++i) {
          const char32_t c = text_[i] | 32;
          v = v * 16 + (c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0);
        }
        return v;
      };
      const uint32_t high = value(start), low = value(start + 6);
      if (high >= 0xD800 && high < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
        at_ = start + 10;
        return CharSet::of(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
      }
    }
    return hex(4, 4);
  }

  Result<CharSet> property_escape(bool is_complement) {
    std::string name;
    if (take(U"{")) {
      if (take(U"^")) is_complement = !is_complement;
      while (more() && text_[at_] != '}') append_utf8(name, text_[at_++]);
      if (!take(U"}")) return error("missing '}'");
    } else if (more()) {
      append_utf8(name, text_[at_++]);
    }
    auto set = CharSet::property(name);
    if (!set.ok()) return outside(set.status().message());
    return is_complement ? set->complement() : *set;
  }

  Result<CharSet> escape(bool in_bracket) {
    ++at_;
    if (!more()) return error("nothing after '\\'");
    const char32_t c = text_[at_++];
    switch (c) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S': return regex_class(c, dialect_);
      case 'p':
      case 'P': return property_escape(c == 'P');
      case 't': return CharSet::of('\t');
      case 'n': return CharSet::of('\n');
      case 'v': return CharSet::of('\v');
      case 'f': return CharSet::of('\f');
      case 'r': return CharSet::of('\r');
      case 'x':
        if (take(U"{")) {
          ASSIGN_OR_RETURN(CharSet set, hex(1, 6));
          if (!take(U"}")) return error("missing '}'");
          return set;
        }
        return hex(2, 2);
      case 'u': return unicode_escape();
      case 'c':
        if (!more() || !((text_[at_] | 32) >= 'a' && (text_[at_] | 32) <= 'z'))
          return error("expected a letter after \\c");
        return CharSet::of(text_[at_++] & 31);
      case 'b':
        if (in_bracket) return CharSet::of('\b');
        return outside("\\b is not supported");
      default: break;
    }
    if (c == '0' && !(more() && text_[at_] >= '0' && text_[at_] <= '9')) return CharSet::of(0);
    if (c >= '0' && c <= '9') return outside("back-references are not supported");
    if (c == 'k') return outside("back-references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return outside("unknown escape");
    return CharSet::of(c);
  }

  std::u32string_view text_;
  RegexDialect dialect_;
  const RegexLimits& limits_;
  size_t at_ = 0;
  bool ignore_case_ = false, dot_all_ = false;
};

Result<RegexId> parse_as(RegexPool& pool, std::string_view pattern, RegexDialect dialect, bool is_whole,
                         const RegexLimits& limits) {
  std::u32string text;
  for (std::string_view rest = pattern; !rest.empty();) {
    const CodePoint c = decode_utf8(rest);
    if (c.num_bytes == 0) return invalid_argument("pattern: not valid UTF-8");
    text.push_back(c.value);
    rest.remove_prefix(c.num_bytes);
    if (text.size() > limits.code_points_max)
      return resource_exhausted(fmt::format("pattern: longer than {} code points", limits.code_points_max));
  }
  ASSIGN_OR_RETURN(const RegexTree tree, Parser(text, dialect, limits).parse());
  return language_of(pool, tree, is_whole, limits);
}

}  // namespace

CharSet regex_class(char32_t letter, RegexDialect dialect) {
  CharSet set;
  const char32_t kind = letter | 32;
  if (kind == 'd' || kind == 'w') set.add('0', '9' + 1);
  if (kind == 'w') {
    set.add('A', 'Z' + 1);
    set.add('a', 'z' + 1);
    set.add('_', '_' + 1);
  }
  if (kind == 's') {
    set.add(CharSet::range('\t', 14));
    set.add(' ', ' ' + 1);
    if (dialect == RegexDialect::kEcma) {
      for (const char32_t c : {0xA0, 0x1680, 0x202F, 0x205F, 0x3000, 0xFEFF}) set.add(c, c + 1);
      set.add(0x2000, 0x200B);
      set.add(0x2028, 0x202A);
    }
  }
  return letter < 'a' ? set.complement() : set;
}

Result<RegexId> parse_regex(RegexPool& pool, std::string_view pattern, RegexDialect dialect,
                            const RegexLimits& limits) {
  return parse_as(pool, pattern, dialect, dialect == RegexDialect::kRe2, limits);
}

Result<RegexId> parse_whole_regex(RegexPool& pool, std::string_view pattern) {
  return parse_as(pool, pattern, RegexDialect::kEcma, true, {});
}

}  // namespace deepinfer
