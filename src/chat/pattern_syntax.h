// SPDX-License-Identifier: MIT
// Whether a text is a regular expression in the syntax JSON Schema patterns use (ECMA-262 with the Unicode flag, plus
// inline flags, possessive repeats and (?P<name>)). Syntax only; nothing is compiled. Linear time.
#pragma once

#include <string_view>

#include "base/status.h"

namespace deepinfer {

// invalid_argument with the byte offset and what is wrong there.
Status check_pattern_syntax(std::string_view pattern);

}  // namespace deepinfer
