// SPDX-License-Identifier: MIT
// What the pre-tokenizer needs to know of a code point. Table: code_point_table.inc, generated from Unicode 16.0.0, the
// version of the reference library's regular expressions (the script compares all 1,112,064 code points).
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer {

enum class CodePointClass : uint8_t {
  kOther,        // matched by no alternative of its own: controls, format characters, private use, unassigned
  kWord,         // \p{L} \p{M}
  kPunctuation,  // \p{P} \p{S}
  kNumber,       // \p{N}
  kNewline,      // CR LF
  kSpace,        // U+0020
  kWhitespace,   // the rest of \s
  kHanWord,      // U+4E00-9FA5, U+3040-30FF, by category as above
  kHanPunctuation,
  kHanOther,
};

inline constexpr size_t kCodePointBlock = 128;
extern const uint8_t kCodePointBlocks[0x110000 / kCodePointBlock];
extern const uint8_t kCodePointClasses[];

// Precondition: code_point < 0x110000.
inline CodePointClass class_of(char32_t code_point) {
  const size_t block = kCodePointBlocks[code_point / kCodePointBlock];
  return static_cast<CodePointClass>(kCodePointClasses[block * kCodePointBlock + code_point % kCodePointBlock]);
}

inline bool is_han(CodePointClass c) { return c >= CodePointClass::kHanWord; }
inline bool is_white(CodePointClass c) { return c >= CodePointClass::kNewline && c <= CodePointClass::kWhitespace; }

}  // namespace deepinfer
