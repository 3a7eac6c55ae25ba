// SPDX-License-Identifier: MIT
// data: URLs and base64 as requests carry images. Reading follows the Fetch standard (data: URL processor, forgiving
// base64) in how headers, escapes, white space and fragments are taken. Linear time, no allocation beyond the result.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

struct DataUrl {
  std::string type, subtype;  // lower case; text/plain when the header names no valid media type
  bool is_base64 = false;
  std::string_view body;  // into the source, still escaped
};

// Nothing when `text` is no data: URL.
std::optional<DataUrl> parse_data_url(std::string_view text);

// Bytes of the body. Nothing when it is marked as base64 and is none.
std::optional<std::string> data_url_bytes(const DataUrl& url);

// Strict RFC 4648 base64: padded, canonical, no white space.
bool is_strict_base64(std::string_view text);

}  // namespace deepinfer
