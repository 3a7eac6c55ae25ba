// SPDX-License-Identifier: MIT
// Where the released pre-tokenizer cuts a text (specification: chat.md 1.2): three split patterns one after the other,
// each on the pieces of the one before, as one hand-written state machine over code points:
//   1. \p{N}{1,3}
//   2. [U+4E00-9FA5 U+3040-30FF]+
//   3. [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ | ?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+ |
//      \s+(?!\S) | \s+
// Look-ahead of 3 stops where 1 or 2 cut. What no pattern matches forms pieces of its own. Every piece depends only on
// the text from its first byte on, so a text may be entered at any cut. An ill-formed byte counts as one unassigned
// code point. Pure functions; linear time.
#pragma once

#include <cstddef>
#include <string_view>

namespace deepinfer {

// End of the piece that begins at `begin`. Precondition: begin < text.size(), and a piece begins there.
size_t piece_end(std::string_view text, size_t begin);

// A place at or after `from` where a piece begins whatever stands before and behind it, found without splitting: after
// a line feed that no white space follows, since no alternative goes on past a line feed except through white space;
// where no line feed is near, before a number or at either end of Han text, where patterns 1 and 2 cut. text.size()
// when there is none. Precondition: from >= 1.
size_t next_safe_cut(std::string_view text, size_t from);

}  // namespace deepinfer
