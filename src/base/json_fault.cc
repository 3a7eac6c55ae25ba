// SPDX-License-Identifier: MIT
#include "base/json_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace deepinfer {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// Reads on as long as the text is JSON; `at` is where it stopped. No recursion: nesting is the client's to choose.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool read() {
    enum class Expect { kValue, kFirst, kComma } expect = Expect::kValue;
    for (;;) {
      skip_space();
      if (expect == Expect::kComma) {
        if (open_.empty()) return at_ == text_.size();
        if (take(open_.back())) open_.pop_back();
        else if (!take(',') || (open_.back() == '}' && !read_key())) return false;
        else expect = Expect::kValue;
        continue;
      }
      if (expect == Expect::kFirst && take(open_.back())) {
        open_.pop_back();
        expect = Expect::kComma;
        continue;
      }
      if (expect == Expect::kFirst && open_.back() == '}' && !read_key()) return false;
      skip_space();
      if (take('{')) open_.push_back('}'), expect = Expect::kFirst;
      else if (take('[')) open_.push_back(']'), expect = Expect::kFirst;
      else if (read_scalar()) expect = Expect::kComma;
      else return false;
    }
  }
  size_t at() const { return at_; }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  template <typename Is>
  bool take_one(const Is& is) {
    if (at_ >= text_.size() || !is(text_[at_])) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool read_key() {
    skip_space();
    if (!read_string()) return false;
    skip_space();
    return take(':');
  }
  bool read_word(std::string_view word) {
    for (const char c : word)
      if (!take(c)) return false;
    return true;
  }
  bool read_scalar() {
    if (at_ >= text_.size()) return false;
    switch (text_[at_]) {
      case '"': return read_string();
      case 't': return read_word("true");
      case 'f': return read_word("false");
      case 'n': return read_word("null");
      default: return read_number();
    }
  }
  bool read_digits() {
    if (!take_one(is_digit)) return false;
    while (take_one(is_digit)) {}
    return true;
  }
  bool read_number() {
    take('-');
    if (!take('0') && !read_digits()) return false;
    if (take('.') && !read_digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return read_digits();
    }
    return true;
  }
  bool read_string() {
    if (!take('"')) return false;
    while (at_ < text_.size() && text_[at_] != '"') {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte < 0x20) return false;
      if (byte == '\\') {
        ++at_;
        if (take('u')) {
          for (int i = 0; i < 4; ++i)
            if (!take_one(is_hex)) return false;
        } else if (!take_one([](char c) { return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos; })) {
          return false;
        }
      } else if (byte < 0x80) {
        ++at_;
      } else {
        const CodePoint point = decode_utf8(text_.substr(at_));
        if (point.num_bytes == 0) return false;
        at_ += point.num_bytes;
      }
    }
    return take('"');
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<char> open_;  // what closes each open array and object
};

}  // namespace

size_t find_json_fault(std::string_view text) {
  Reader reader(text);
  return reader.read() ? std::string_view::npos : reader.at();
}

std::string describe_position(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("byte {} (line {}, column {})", before.size(), std::ranges::count(before, '\n') + 1,
                     before.size() - line_begin + 1);
}

}  // namespace deepinfer
