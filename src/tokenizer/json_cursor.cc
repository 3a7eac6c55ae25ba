// SPDX-License-Identifier: MIT
#include "tokenizer/json_cursor.h"

#include "base/json.h"

namespace deepinfer {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Offset behind the closing quote of the string that opens at `at`; npos when it does not end.
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] == '\\') ++at;
  }
  return std::string_view::npos;
}

}  // namespace

bool JsonCursor::fail() {
  ok_ = false;
  return false;
}

void JsonCursor::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

char JsonCursor::peek() {
  skip_space();
  return ok_ && at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonCursor::enter(char bracket) {
  if (peek() != bracket) return fail();
  ++at_;
  is_first_ = true;
  return true;
}

bool JsonCursor::next(char closing_bracket) {
  const bool is_first = is_first_;
  is_first_ = false;
  const char c = peek();
  if (c == closing_bracket) {
    ++at_;
    return false;
  }
  if (is_first) return ok_ && c != '\0' ? true : fail();
  if (c != ',') return fail();
  ++at_;
  return true;
}

std::string_view JsonCursor::key() {
  const std::string_view name = string();
  if (peek() != ':') fail();
  else ++at_;
  return ok_ ? name : std::string_view();
}

std::string_view JsonCursor::string() {
  if (peek() != '"') {
    fail();
    return {};
  }
  const size_t begin = at_;
  size_t end = begin + 1;
  while (end < text_.size() && text_[end] != '"' && text_[end] != '\\' && static_cast<uint8_t>(text_[end]) >= 0x20)
    ++end;
  if (end < text_.size() && text_[end] == '"') {
    at_ = end + 1;
    return text_.substr(begin + 1, end - begin - 1);
  }
  end = string_end(text_, begin);
  if (end == std::string_view::npos) {
    fail();
    return {};
  }
  auto value = parse_json(text_.substr(begin, end - begin));
  if (!value.ok() || !value->is_string()) {
    fail();
    return {};
  }
  at_ = end;
  unescaped_ = std::move(value->as_string());
  return unescaped_;
}

int64_t JsonCursor::integer() {
  static constexpr size_t kDigitsMax = 18;
  peek();
  const size_t begin = at_;
  int64_t value = 0;
  while (at_ < text_.size() && at_ - begin <= kDigitsMax && text_[at_] >= '0' && text_[at_] <= '9')
    value = value * 10 + (text_[at_++] - '0');
  const size_t num_digits = at_ - begin;
  if (num_digits == 0 || num_digits > kDigitsMax || (num_digits > 1 && text_[begin] == '0')) {
    at_ = begin;
    fail();
  }
  return value;
}

std::string_view JsonCursor::skip_value() {
  peek();
  const size_t begin = at_;
  size_t depth = 0;
  while (ok_ && at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      at_ = string_end(text_, at_);
      if (at_ == std::string_view::npos) {
        at_ = text_.size();
        fail();
      }
      if (depth == 0) break;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at_;
    } else if (c == '}' || c == ']') {
      if (depth == 0) break;  // belongs to what holds the value
      ++at_;
      if (--depth == 0) break;
    } else if (depth == 0 && (c == ',' || is_space(c))) {
      break;
    } else {
      ++at_;
    }
  }
  if (depth != 0 || at_ == begin) fail();
  return ok_ ? text_.substr(begin, at_ - begin) : std::string_view();
}

bool JsonCursor::at_end() { return peek() == '\0' && at_ == text_.size() && ok_; }

}  // namespace deepinfer
