// SPDX-License-Identifier: MIT
// Walks a large JSON text without building values: the two tables of a tokenizer.json have a quarter of a million
// entries. Everything else of the text is handed on as slices to parse_json, which is strict; the cursor itself accepts
// objects, arrays, strings and integers in exactly the JSON forms. An error is sticky and remembers the offset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

class JsonCursor {
 public:
  // Precondition: `text` is valid UTF-8 and outlives the cursor.
  explicit JsonCursor(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  size_t offset() const { return at_; }

  // The bracket that opens an object or array.
  bool enter(char bracket);
  // Moves to the next element of what was entered; false at its end (consumed) or on an error. Call once before each
  // value.
  bool next(char closing_bracket);
  // A member's name and colon. The view is valid until the next call of string() or key().
  std::string_view key();
  std::string_view string();
  int64_t integer();  // at most 18 digits, no sign, fraction or exponent
  char peek();        // first byte of the next value, 0 at the end
  // Any value, as it stands. Its inside is not checked beyond strings and bracket depth.
  std::string_view skip_value();
  // Nothing but white space is left.
  bool at_end();

 private:
  void skip_space();
  bool fail();

  std::string_view text_;
  size_t at_ = 0;
  bool ok_ = true;
  bool is_first_ = false;
  std::string unescaped_;
};

}  // namespace deepinfer
