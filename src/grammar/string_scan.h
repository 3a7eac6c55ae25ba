// SPDX-License-Identifier: MIT
// Code points out of bytes, one byte at a time: UTF-8 (Unicode table 3-7) and, inside JSON strings, escapes (RFC 8259).
// A string is written in one way: escaped is what must be, a quote, a backslash and control characters (short or as
// four hexadecimal digits). The phase is a number so that it can be part of a state.
#pragma once

#include <cstdint>

#include "grammar/char_set.h"

namespace deepinfer {

struct CharScan {
  enum class Result : uint8_t { kDead, kPartial, kChar, kQuote };
  Result result = Result::kDead;
  uint32_t phase = 0;           // kPartial
  char32_t begin = 0, end = 0;  // kPartial: the code points this may become; kChar: begin
  bool is_escape = false;       // kPartial: it may also become a quote or a backslash
};

constexpr uint32_t kPhaseStart = 0;        // between code points
constexpr uint32_t kPhaseOpen = 1u << 28;  // before the opening quote

// Some character of `set` begins as the partial `scan` does.
bool meets(const CharSet& set, const CharScan& scan);

CharScan scan_raw(uint32_t phase, uint8_t byte);
CharScan scan_json_string(uint32_t phase, uint8_t byte);

}  // namespace deepinfer
