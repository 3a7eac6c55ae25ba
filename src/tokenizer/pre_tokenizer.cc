// SPDX-License-Identifier: MIT
// The three patterns collapse into one switch on the class of the piece's first code point, because alternatives of
// pattern 3 begin with disjoint classes except for white space, and 1 and 2 only bound how far a look-ahead sees:
// numbers and Han code points are simply "not mine" for every other run. A mark that could be the optional first code
// point of the second alternative starts the same piece as a letter does, so letters and marks share a class.
#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"
#include "tokenizer/code_point_class.h"

namespace deepinfer {
namespace {

using enum CodePointClass;

struct Point {
  CodePointClass kind;
  uint8_t num_bytes;
};

bool is_ascii_letter(uint8_t byte) { return static_cast<uint8_t>((byte | 0x20) - 'a') < 26; }

// Index of the first byte of the word that is not an ASCII letter, 8 if all are.
size_t leading_letters(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  const uint64_t lower = word | kOnes * 0x20;
  const uint64_t low7 = lower & kOnes * 0x7F;
  // High bit of each byte: low7 >= 'a', low7 > 'z', and the byte itself is not ASCII.
  const uint64_t at_least_a = low7 + kOnes * (0x80 - 'a');
  const uint64_t above_z = low7 + kOnes * (0x80 - 'z' - 1);
  const uint64_t bad = (~at_least_a | above_z | word) & kOnes * 0x80;
  return bad == 0 ? 8 : static_cast<size_t>(__builtin_ctzll(bad)) / 8;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : data_(reinterpret_cast<const uint8_t*>(text.data())), end_(text.size()) {}

  bool at_end(size_t at) const { return at >= end_; }
  uint8_t byte(size_t at) const { return data_[at]; }

  // Precondition: at < end.
  Point point(size_t at) const {
    const uint8_t lead = data_[at];
    if (lead < 0x80) return {static_cast<CodePointClass>(kCodePointClasses[lead]), 1};
    if (lead >= 0xE1 && lead <= 0xEC && end_ - at >= 3) {  // the common three-byte forms have no special cases
      const uint8_t b = data_[at + 1], c = data_[at + 2];
      if ((b & 0xC0) == 0x80 && (c & 0xC0) == 0x80)
        return {class_of(static_cast<char32_t>((lead & 0x0F) << 12 | (b & 0x3F) << 6 | (c & 0x3F))), 3};
      return {kOther, 1};
    }
    const CodePoint found = decode_utf8({reinterpret_cast<const char*>(data_) + at, end_ - at});
    if (found.num_bytes == 0) return {kOther, 1};
    return {class_of(found.value), found.num_bytes};
  }

  bool is(size_t at, CodePointClass kind) const { return at < end_ && point(at).kind == kind; }

  // End of the run of `kind` that begins at or after `at`; `at` when there is none.
  size_t run(size_t at, CodePointClass kind) const {
    while (at < end_) {
      const Point next = point(at);
      if (next.kind != kind) break;
      at += next.num_bytes;
    }
    return at;
  }

  size_t ascii_letters(size_t at) const {
    for (; end_ - at >= 8; at += 8) {
      uint64_t word;
      std::memcpy(&word, data_ + at, 8);
      const size_t n = leading_letters(word);
      if (n < 8) return at + n;
    }
    while (at < end_ && is_ascii_letter(data_[at])) ++at;
    return at;
  }

  size_t word(size_t at) const {
    while (at < end_) {
      at = ascii_letters(at);
      if (at == end_ || data_[at] < 0x80) break;  // ASCII has no marks, and letters only there
      const Point next = point(at);
      if (next.kind != kWord) break;
      at += next.num_bytes;
    }
    return at;
  }

 private:
  const uint8_t* data_;
  size_t end_;
};

size_t number_end(const Reader& text, size_t at) {
  for (int i = 0; i < 3 && !text.at_end(at); ++i) {
    const Point next = text.point(at);
    if (next.kind != kNumber) break;
    at += next.num_bytes;
  }
  return at;
}

size_t punctuation_end(const Reader& text, size_t at) {
  at = text.run(at, kPunctuation);
  while (!text.at_end(at) && (text.byte(at) == '\n' || text.byte(at) == '\r')) ++at;
  return at;
}

// \s*[\r\n]+ | \s+(?!\S) | \s+ : up to the last line break, else all but the last code point unless the run ends the
// piece of pattern 2 it lies in.
size_t white_end(const Reader& text, size_t begin) {
  size_t at = begin, last = begin, after_newline = begin;
  CodePointClass next = kOther;
  bool ends = true;
  while (!text.at_end(at)) {
    const Point point = text.point(at);
    if (!is_white(point.kind)) {
      next = point.kind;
      ends = false;
      break;
    }
    last = at;
    at += point.num_bytes;
    if (point.kind == kNewline) after_newline = at;
  }
  if (after_newline != begin) return after_newline;
  if (ends || next == kNumber || is_han(next)) return at;
  return last == begin ? at : last;
}

// A run of code points that nothing matches; its last one belongs to a word that follows.
size_t other_end(const Reader& text, size_t begin, CodePointClass other, CodePointClass word) {
  size_t at = begin, last = begin;
  while (text.is(at, other)) {
    last = at;
    at += text.point(at).num_bytes;
  }
  if (!text.is(at, word)) return at;
  return last == begin ? text.run(at, word) : last;
}

}  // namespace

size_t piece_end(std::string_view whole, size_t begin) {
  const Reader text(whole);
  const Point first = text.point(begin);
  const size_t second = begin + first.num_bytes;
  switch (first.kind) {
    case kWord: return text.word(second);
    case kSpace:
    case kWhitespace:
      if (text.at_end(second)) return second;
      switch (text.point(second).kind) {
        case kWord: return text.word(second);
        case kPunctuation:
          if (first.kind == kSpace) return punctuation_end(text, second);
          return second;
        default: return white_end(text, begin);
      }
    case kPunctuation:
      if (first.num_bytes == 1 && !text.at_end(second) && is_ascii_letter(text.byte(second)))
        return text.ascii_letters(second);
      return punctuation_end(text, second);
    case kNumber: return number_end(text, begin);
    case kNewline: return white_end(text, begin);
    case kHanWord: return text.run(second, kHanWord);
    case kHanPunctuation: return text.run(second, kHanPunctuation);
    case kOther: return other_end(text, begin, kOther, kWord);
    case kHanOther: return other_end(text, begin, kHanOther, kHanWord);
  }
  return second;
}

namespace {

// First place in [from, end) where a run of numbers begins or a run of Han begins or ends; npos when there is none.
size_t class_change(const Reader& text, size_t from, size_t end) {
  // A byte that does not continue a code point begins one, also in ill-formed text.
  while (from < end && (text.byte(from) & 0xC0) == 0x80) ++from;
  if (from >= end) return std::string_view::npos;
  Point last = text.point(from);
  for (size_t at = from + last.num_bytes; at < end; at += last.num_bytes) {
    const Point next = text.point(at);
    if ((next.kind == kNumber && last.kind != kNumber) || is_han(next.kind) != is_han(last.kind)) return at;
    last = next;
  }
  return std::string_view::npos;
}

}  // namespace

size_t next_safe_cut(std::string_view whole, size_t from) {
  static constexpr size_t kLineBytes = 4096;  // text without line feeds is cut at the rarer kind of place
  const Reader text(whole);
  bool is_line_long = true;
  for (size_t at = from - 1, end = from + kLineBytes;;) {
    const size_t bound = is_line_long ? std::min(end, whole.size()) : whole.size();
    const void* found = at < bound ? std::memchr(whole.data() + at, '\n', bound - at) : nullptr;
    if (found != nullptr) {
      at = static_cast<size_t>(static_cast<const char*>(found) - whole.data()) + 1;
      if (at < whole.size() && !is_white(text.point(at).kind)) return at;
      continue;
    }
    if (!is_line_long || bound == whole.size()) return whole.size();
    if (const size_t cut = class_change(text, from, bound); cut != std::string_view::npos) return cut;
    is_line_long = false;
  }
}

}  // namespace deepinfer
