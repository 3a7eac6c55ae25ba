// SPDX-License-Identifier: MIT
// The byte-level alphabet of a tokenizer.json: each byte is written as one printable code point. Bytes 21-7E, A1-AC and
// AE-FF stand for themselves, the other 68 are U+0100 onwards in byte order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

// The bytes that `written` stands for; nothing when a code point is not of the alphabet (or `written` is not UTF-8).
std::optional<std::string> bytes_of_written(std::string_view written);
std::string written_of_bytes(std::string_view bytes);

}  // namespace deepinfer
