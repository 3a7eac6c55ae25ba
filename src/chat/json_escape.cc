// SPDX-License-Identifier: MIT
#include "chat/json_escape.h"

namespace deepinfer {

void append_json_escaped(std::string& out, uint8_t byte) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (byte) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (byte >= 0x20) {
    out += static_cast<char>(byte);
    return;
  }
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

void append_json_escaped(std::string& out, std::string_view text) {
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (!needs_json_escape(byte)) continue;
    out.append(text, plain, i - plain);
    append_json_escaped(out, byte);
    plain = i + 1;
  }
  out.append(text, plain);
}

}  // namespace deepinfer
