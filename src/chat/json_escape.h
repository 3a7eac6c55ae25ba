// SPDX-License-Identifier: MIT
// The inside of a JSON string, written in pieces: `"` `\` \b \f \n \r \t, other control characters as \u00xx, the rest
// unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

inline bool needs_json_escape(uint8_t byte) { return byte < 0x20 || byte == '"' || byte == '\\'; }
void append_json_escaped(std::string& out, uint8_t byte);
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace deepinfer
