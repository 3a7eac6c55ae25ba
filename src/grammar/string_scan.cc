// SPDX-License-Identifier: MIT
#include "grammar/string_scan.h"

#include <algorithm>

namespace deepinfer {
namespace {

// Phase: kind in the upper 4 bits.
enum Kind : uint32_t { kStart = 0, kOpen = 1, kBackslash = 2, kHex = 3, kUtf8 = 4 };
constexpr char32_t kControlEnd = 0x20;
constexpr uint32_t kKindShift = 28, kCountShift = 24, kValueMask = (1u << 24) - 1;

CharScan partial(Kind kind, uint32_t count, uint32_t value, char32_t begin, char32_t end) {
  return {CharScan::Result::kPartial, kind << kKindShift | count << kCountShift | value, begin, end};
}
CharScan character(char32_t c) { return {CharScan::Result::kChar, 0, c, c + 1}; }

// UTF-8: count = continuation bytes left | total << 2, value = bits so far.
CharScan utf8_partial(uint32_t left, uint32_t total, uint32_t value) {
  static constexpr char32_t kLowest[] = {0, 0x80, 0x800, 0x10000};
  const char32_t begin = std::max<char32_t>(value << (6 * left), kLowest[total]);
  const char32_t end = std::min<char32_t>((value + 1) << (6 * left), 0x110000);
  if (begin >= end || (begin >= 0xD800 && end <= 0xE000)) return {};
  if (left == 0) return character(value);
  return partial(kUtf8, left | total << 2, value, begin, end);
}

CharScan utf8_lead(uint8_t byte) {
  if (byte < 0x80) return character(byte);
  if (byte >= 0xC2 && byte < 0xE0) return utf8_partial(1, 1, byte & 0x1F);
  if (byte >= 0xE0 && byte < 0xF0) return utf8_partial(2, 2, byte & 0x0F);
  if (byte >= 0xF0 && byte < 0xF5) return utf8_partial(3, 3, byte & 0x07);
  return {};
}

CharScan utf8_more(uint32_t phase, uint8_t byte) {
  if ((byte & 0xC0) != 0x80) return {};
  const uint32_t count = phase >> kCountShift & 15;
  return utf8_partial((count & 3) - 1, count >> 2, (phase & kValueMask) << 6 | (byte & 0x3F));
}

int hex_digit(uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  const uint8_t lower = byte | 32;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

CharScan after_backslash(uint8_t byte) {
  switch (byte) {
    case '"':
    case '\\': return character(byte);
    case 'b': return character('\b');
    case 'f': return character('\f');
    case 'n': return character('\n');
    case 'r': return character('\r');
    case 't': return character('\t');
    case 'u': return partial(kHex, 0, 0, 0, kControlEnd);
    default: return {};
  }
}

// Only control characters are written as \u00XX: every other character has one spelling, itself.
CharScan hex_of_control(uint32_t phase, uint8_t byte) {
  const int digit = hex_digit(byte);
  if (digit < 0) return {};
  const uint32_t count = (phase >> kCountShift & 15) + 1;
  const uint32_t value = (phase & kValueMask) << 4 | static_cast<uint32_t>(digit);
  const uint32_t left = 4 * (4 - count);
  if (value << left >= kControlEnd) return {};
  if (count == 4) return character(value);
  return partial(kHex, count, value, value << left, std::min<char32_t>((value + 1) << left, kControlEnd));
}

}  // namespace

bool meets(const CharSet& set, const CharScan& scan) {
  if (scan.is_escape && (set.contains('"') || set.contains('\\'))) return true;
  const auto after = std::ranges::upper_bound(set.spans(), scan.begin, {}, &CharSet::Span::begin);
  if (after != set.spans().end() && after->begin < scan.end) return true;
  return after != set.spans().begin() && std::prev(after)->end > scan.begin;
}

CharScan scan_raw(uint32_t phase, uint8_t byte) {
  return phase == kPhaseStart ? utf8_lead(byte) : utf8_more(phase, byte);
}

CharScan scan_json_string(uint32_t phase, uint8_t byte) {
  switch (phase >> kKindShift) {
    case kStart:
      if (byte == '"') return {CharScan::Result::kQuote, 0, 0, 0};
      if (byte == '\\') return {CharScan::Result::kPartial, kBackslash << kKindShift, 0, kControlEnd, true};
      return byte < 0x20 ? CharScan{} : utf8_lead(byte);
    case kOpen: return byte == '"' ? CharScan{CharScan::Result::kPartial, kPhaseStart, 0, 0x110000} : CharScan{};
    case kBackslash: return after_backslash(byte);
    case kHex: return hex_of_control(phase, byte);
    case kUtf8: return utf8_more(phase, byte);
    default: return {};
  }
}

}  // namespace deepinfer
