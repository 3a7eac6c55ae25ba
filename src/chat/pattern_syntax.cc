// SPDX-License-Identifier: MIT
#include "chat/pattern_syntax.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdint>
#include <set>
#include <string>

#include "base/utf8.h"

namespace deepinfer {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_part(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

// Property names: general categories and the few others that stand alone. Script names are not listed: any capitalised
// word after Script= or a known script is taken.
constexpr std::string_view kPropertyNames =
    "L Lu Ll Lt LC Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs "
    "Co Cn Letter Uppercase_Letter Lowercase_Letter Titlecase_Letter Cased_Letter Modifier_Letter "
    "Other_Letter Mark Nonspacing_Mark Spacing_Mark Enclosing_Mark Number Decimal_Number Letter_Number "
    "Other_Number Punctuation Connector_Punctuation Dash_Punctuation Open_Punctuation Close_Punctuation "
    "Initial_Punctuation Final_Punctuation Other_Punctuation Symbol Math_Symbol Currency_Symbol "
    "Modifier_Symbol Other_Symbol Separator Space_Separator Line_Separator Paragraph_Separator Other "
    "Control Format Surrogate Private_Use Unassigned Any ASCII Assigned Alphabetic Uppercase Lowercase "
    "White_Space Emoji Emoji_Presentation Extended_Pictographic ID_Start ID_Continue XID_Start "
    "XID_Continue Math Dash Diacritic Ideographic Hex_Digit Latin Greek Cyrillic Han Hiragana Katakana "
    "Hangul Arabic Hebrew Thai Devanagari Bengali Tamil Telugu Armenian Georgian Ethiopic Khmer Lao "
    "Mongolian Myanmar Tibetan Gujarati Gurmukhi Kannada Malayalam Sinhala Bopomofo Common Inherited "
    "Braille Coptic Cherokee ";

bool is_known_property(std::string_view name) {
  static const std::set<std::string_view> names = [] {
    std::set<std::string_view> all;
    for (std::string_view rest = kPropertyNames; !rest.empty();) {
      const size_t end = rest.find(' ');
      all.insert(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
    return all;
  }();
  if (name.starts_with("Is")) name.remove_prefix(2);
  return names.contains(name);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Status read() {
    collect_names();
    TRY(alternatives(0));
    if (!at_end()) return wrong("no group is open here");
    if (highest_reference_ > num_groups_) return wrong(fmt::format("there is no group {}", highest_reference_));
    return {};
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (peek() != c || at_end()) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  Status wrong(std::string_view what) const { return invalid_argument(fmt::format("pattern, byte {}: {}", at_, what)); }

  // Named groups may be referred to before they appear.
  void collect_names() {
    for (size_t i = text_.find("(?<"); i != std::string_view::npos; i = text_.find("(?<", i + 1)) {
      const size_t end = text_.find('>', i);
      if (end != std::string_view::npos) known_names_.insert(text_.substr(i + 3, end - i - 3));
    }
  }

  Status alternatives(int depth) {
    if (depth > 200) return wrong("groups are nested too deeply");
    while (true) {
      while (!at_end() && peek() != '|' && peek() != ')') TRY(term(depth));
      if (!take('|')) return {};
    }
  }

  Status term(int depth) {
    bool repeatable = true;
    const char c = peek();
    if (c == '^' || c == '$') {
      ++at_;
    } else if (c == '(') {
      TRY(group(depth, repeatable));
    } else if (c == '[') {
      TRY(char_class());
    } else if (c == '\\') {
      TRY(escape(false));
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
      return wrong("nothing to repeat");
    } else {
      at_ += std::max<size_t>(1, decode_utf8(text_.substr(at_)).num_bytes);
    }
    return repeats(repeatable);
  }

  // One quantifier with its lazy or possessive mark; counted repeats may follow one another.
  Status repeats(bool repeatable) {
    while (!at_end() && (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')) {
      if (!repeatable) return wrong("a look-around cannot be repeated");
      const bool counted = peek() == '{';
      if (counted) TRY(counted_repeat());
      else ++at_;
      if (!take('?')) take('+');
      if (!counted && (peek() == '*' || peek() == '+' || peek() == '?')) return wrong("nothing to repeat");
    }
    return {};
  }

  Status counted_repeat() {
    ++at_;
    uint64_t least = 0, most = UINT64_MAX;
    if (!number(least)) return wrong("a count was expected");
    if (take(',')) {
      if (peek() != '}' && !number(most)) return wrong("a count was expected");
    }
    if (!take('}')) return wrong("'}' was expected");
    return most < least ? wrong("the range of the repeat is reversed") : Status();
  }

  bool number(uint64_t& value) {
    if (!is_digit(peek())) return false;
    for (value = 0; is_digit(peek()); ++at_)
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), 1'000'000'000);
    return true;
  }

  Status group(int depth, bool& repeatable) {
    ++at_;
    if (take("?=") || take("?!") || take("?<=") || take("?<!")) {
      repeatable = false;
    } else if (take("?P<") || take("?<")) {
      TRY(group_name());
      ++num_groups_;
    } else if (take('?')) {
      while (std::string_view("imsux-").find(peek()) != std::string_view::npos && !at_end()) ++at_;
      if (take(')')) return {};
      if (!take(':')) return wrong("an unknown kind of group");
    } else {
      ++num_groups_;
    }
    TRY(alternatives(depth + 1));
    return take(')') ? Status() : wrong("')' was expected");
  }

  Status group_name() {
    const size_t begin = at_;
    while (!at_end() && peek() != '>') ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (!take('>') || name.empty() || is_digit(name[0])) return wrong("a group name and '>' were expected");
    return used_names_.insert(name).second ? Status() : wrong("two groups have one name");
  }

  Status char_class() {
    ++at_;
    take('^');
    if (peek() == ']') return wrong("an empty class");
    while (!at_end() && peek() != ']') {
      int64_t low = -1, high = -1;
      TRY(class_item(low));
      if (peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') continue;
      ++at_;
      TRY(class_item(high));
      if (low < 0 || high < 0 || high < low) return wrong("a class range is reversed or has no single end");
    }
    return take(']') ? Status() : wrong("']' was expected");
  }

  // `value`: the code point of a single character, -1 for a class inside the class.
  Status class_item(int64_t& value) {
    if (peek() == '\\') {
      const size_t begin = at_;
      TRY(escape(true));
      if (at_ == begin + 2 && !is_letter(text_[begin + 1])) value = static_cast<unsigned char>(text_[begin + 1]);
      return {};
    }
    if (take("[:")) {
      const size_t end = text_.find(":]", at_);
      if (end == std::string_view::npos) return wrong("':]' was expected");
      at_ = end + 2;
      return {};
    }
    if (peek() == '[') return char_class();
    const CodePoint point = decode_utf8(text_.substr(at_));
    value = point.value;
    at_ += std::max<size_t>(1, point.num_bytes);
    return {};
  }

  Status hex_digits(int count) {
    for (int i = 0; i < count; ++i, ++at_)
      if (!is_hex(peek())) return wrong("a hexadecimal digit was expected");
    return {};
  }

  Status escape(bool in_class) {
    ++at_;
    if (at_end()) return wrong("nothing follows the backslash");
    const char c = text_[at_++];
    switch (c) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'v': return {};
      case 'b':
      case 'B':
      case 'A':
      case 'z': return in_class ? wrong("this escape is no character") : Status();
      case 'c': return is_letter(peek()) ? (++at_, Status()) : wrong("a letter was expected after \\c");
      case 'x': return hex_digits(2);
      case 'u': return unicode_escape();
      case 'p':
      case 'P': return property();
      case 'k': return named_reference();
      default: break;
    }
    if (is_digit(c)) return numbered_reference(c, in_class);
    return is_letter(c) ? wrong("an unknown escape") : Status();
  }

  Status unicode_escape() {
    if (!take('{')) return hex_digits(4);
    uint64_t value = 0;
    const size_t begin = at_;
    for (; is_hex(peek()); ++at_)
      value = std::min<uint64_t>(
          value * 16 + static_cast<uint64_t>(is_digit(peek()) ? peek() - '0' : (peek() | 32) - 'a' + 10), 1u << 24);
    if (at_ == begin || value > 0x10FFFF || !take('}')) return wrong("no code point");
    return {};
  }

  Status property() {
    if (!take('{')) return is_known_property(std::string(1, peek())) ? (++at_, Status()) : wrong("no such property");
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return wrong("'}' was expected");
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    const size_t equals = name.find('=');
    if (equals == std::string_view::npos) return is_known_property(name) ? Status() : wrong("no such property");
    const std::string_view key = name.substr(0, equals), value = name.substr(equals + 1);
    const bool is_script = key == "Script" || key == "sc" || key == "Script_Extensions" || key == "scx";
    const bool is_category = key == "General_Category" || key == "gc";
    if (is_script && !value.empty()) return {};
    return is_category && is_known_property(value) ? Status() : wrong("no such property");
  }

  Status named_reference() {
    if (!take('<')) return wrong("'<' was expected");
    const size_t begin = at_;
    while (!at_end() && is_name_part(peek())) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    return take('>') && known_names_.contains(name) ? Status() : wrong("no group of that name");
  }

  Status numbered_reference(char first, bool in_class) {
    if (in_class || first == '0') return wrong("an octal escape");
    uint64_t value = static_cast<uint64_t>(first - '0');
    for (; is_digit(peek()); ++at_)
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), 1'000'000);
    highest_reference_ = std::max(highest_reference_, value);
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  uint64_t num_groups_ = 0, highest_reference_ = 0;
  std::set<std::string_view> known_names_, used_names_;
};

}  // namespace

Status check_pattern_syntax(std::string_view pattern) { return Reader(pattern).read(); }

}  // namespace deepinfer
