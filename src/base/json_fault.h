// SPDX-License-Identifier: MIT
// Where a text stops being JSON, for messages: the parser in use says what is wrong, not where. Linear; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace deepinfer {

// Byte offset of the first byte that cannot stand there (the length where the text ends too early), by the grammar of
// RFC 8259. npos when the grammar has no objection.
size_t find_json_fault(std::string_view text);

// "byte 28 (line 2, column 9)"; columns count bytes from 1.
std::string describe_position(std::string_view text, size_t offset);

}  // namespace deepinfer
