// SPDX-License-Identifier: MIT
// JSON as the prompt templates spell it. Numbers matter here: the model reads these very characters. Source:
// chat.md 2.5.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace deepinfer {

// How a double is written: shortest digits that read back, fixed notation for 1e-5 <= |x| < 1e16 and an exponent with a
// sign beyond (1e+16, 1e-7). Python's spelling uses the exponent below 1e-4 and writes it with two digits (1e-05).
enum class NumberSpelling { kPlain, kPython };

struct JsonSpelling {
  NumberSpelling numbers = NumberSpelling::kPlain;
  bool spaces = true;  // ", " and ": "
};

// Keys keep their order; strings are escaped as base/json writes them.
void append_spelled_json(std::string& out, const Json& value, const JsonSpelling& spelling);
std::string spelled_json(const Json& value, const JsonSpelling& spelling);

// The reading side: RFC 8259 where the last of equal keys wins at the first one's place and integers beyond 64 bits are
// doubles. Errors: invalid_argument, resource_exhausted (bytes, depth 127).
Result<Json> parse_spelled_json(std::string_view text);

}  // namespace deepinfer
