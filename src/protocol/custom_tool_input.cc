// SPDX-License-Identifier: MIT
#include "protocol/custom_tool_input.h"

#include "base/utf8.h"

namespace deepinfer {
namespace {

constexpr std::string_view kPrefix = "{\"input\":\"";

// White space may stand before `{`, before the key, before `:` and before the value.
bool allows_space(size_t num_matched) { return num_matched <= 1 || num_matched >= 8; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The code unit of `\uXXXX` at the start of `text`; -1 when there is none.
int code_unit(std::string_view text) {
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return -1;
  int value = 0;
  for (size_t i = 2; i < 6; ++i) {
    const int digit = hex_value(text[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

bool is_high_surrogate(int unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_surrogate(int unit) { return unit >= 0xDC00 && unit < 0xE000; }

char simple_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/': return c;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return 0;
  }
}

// True while `text`, which begins with a backslash, may still become an escape (or a surrogate pair).
bool is_incomplete_escape(std::string_view text) {
  if (text.size() == 1) return true;
  if (text[1] != 'u') return false;
  for (size_t i = 2; i < text.size() && i < 6; ++i) {
    if (hex_value(text[i]) < 0) return false;
  }
  if (text.size() < 6) return true;
  if (!is_high_surrogate(code_unit(text))) return false;
  if (text.size() >= 7 && text[6] != '\\') return false;
  if (text.size() >= 8 && text[7] != 'u') return false;
  for (size_t i = 8; i < text.size(); ++i) {
    if (hex_value(text[i]) < 0) return false;
  }
  return text.size() < 12;
}

}  // namespace

void CustomToolInput::begin() {
  state_ = State::kPrefix;
  num_matched_ = 0;
  held_.clear();
}

void CustomToolInput::push(std::string_view arguments, std::string& out) {
  for (const char c : arguments) {
    switch (state_) {
      case State::kPrefix: push_prefix(c, out); break;
      case State::kString: push_string(c, out); break;
      case State::kRaw: out += c; break;
      case State::kDone: return;
    }
  }
}

void CustomToolInput::push_prefix(char c, std::string& out) {
  held_ += c;
  if (c == kPrefix[num_matched_]) {
    if (++num_matched_ < kPrefix.size()) return;
    held_.clear();
    state_ = State::kString;
  } else if (!allows_space(num_matched_) || !is_space(c)) {
    out += held_;
    held_.clear();
    state_ = State::kRaw;
  }
}

void CustomToolInput::push_string(char c, std::string& out) {
  if (held_.empty()) {
    if (c == '"') {
      state_ = State::kDone;
    } else if (c == '\\') {
      held_ += c;
    } else {
      out += c;
    }
    return;
  }
  held_ += c;
  if (!is_incomplete_escape(held_)) settle_escape(out);
}

// held_ begins with a backslash and no further byte can make it a longer escape.
void CustomToolInput::settle_escape(std::string& out) {
  size_t used = 0;
  const int unit = code_unit(held_);
  const int second = unit >= 0 ? code_unit(std::string_view(held_).substr(6)) : -1;
  if (held_[1] != 'u' && simple_escape(held_[1]) != 0) {
    out += simple_escape(held_[1]);
    used = 2;
  } else if (is_high_surrogate(unit) && is_low_surrogate(second)) {
    append_utf8(out, static_cast<char32_t>(0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00)));
    used = 12;
  } else if (unit >= 0 && !is_high_surrogate(unit) && !is_low_surrogate(unit)) {
    append_utf8(out, static_cast<char32_t>(unit));
    used = 6;
  } else {
    out += '\\';  // a bad escape stays as it is
    used = 1;
  }
  const std::string rest = held_.substr(used);
  held_.clear();
  for (const char c : rest) {
    if (state_ == State::kString) push_string(c, out);
  }
}

void CustomToolInput::finish(std::string& out) {
  out += held_;
  held_.clear();
  state_ = State::kDone;
}

}  // namespace deepinfer
