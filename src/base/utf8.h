// SPDX-License-Identifier: MIT
// UTF-8 decoding and validation by the Unicode standard's table 3-7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

struct CodePoint {
  char32_t value = 0;
  uint8_t num_bytes = 0;  // 0: no valid code point starts here
};

// The code point at the start of `text`; num_bytes 0 when the bytes are not well formed (or `text` is empty).
CodePoint decode_utf8(std::string_view text);

// Length of the maximal ill-formed prefix at the start of `text` (1 to 3), for replacement as WHATWG and Rust do it:
// each maximal subpart becomes one U+FFFD. Precondition: decode_utf8(text).num_bytes == 0 and text is not empty.
size_t ill_formed_prefix(std::string_view text);

// True when `text` is a proper, so far valid, prefix of one code point: more bytes may complete it.
bool is_incomplete_utf8(std::string_view text);

// The longest prefix of at most `bytes_max` bytes that cuts no code point. Precondition: `text` is valid UTF-8.
std::string_view utf8_prefix(std::string_view text, size_t bytes_max);

bool is_valid_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);

// `bytes` with every maximal ill-formed subpart replaced by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace deepinfer
