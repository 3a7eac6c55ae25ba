// SPDX-License-Identifier: MIT
#include "protocol/wire_json.h"

#include <charconv>

#include "base/utf8.h"

namespace deepinfer {
namespace {

template <typename Integer>
void append_integer(std::string& out, Integer value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, static_cast<size_t>(end - digits));
}

void append_token(std::string& out, std::string_view bytes, double logprob) {
  out += "{\"token\":";
  append_token_text(out, bytes);
  out += ",\"logprob\":";
  append_json_double(out, logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_integer(out, static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])));
  }
  out += ']';
}

}  // namespace

void append_token_text(std::string& out, std::string_view bytes) {
  if (is_valid_utf8(bytes)) {
    append_json_string(out, bytes);
    return;
  }
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    out += "\\\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  out += '"';
}

void append_number(std::string& out, uint64_t value) { append_integer(out, value); }
void append_number(std::string& out, int64_t value) { append_integer(out, value); }

bool append_arguments(std::string& out, std::string_view arguments) {
  JsonLimits limits;
  limits.depth_max = 127;
  limits.refuse_duplicate_keys = false;
  limits.wide_integers = true;
  const auto value = parse_json(arguments, limits);
  if (value.ok()) {
    append_json(out, value.value());
  } else {
    out += "{}";
  }
  return value.ok();
}

void append_logprobs(std::string& out, const ChatEvents& events, Range logprobs) {
  for (int64_t i = logprobs.begin; i < logprobs.end; ++i) {
    const TokenLogprob& token = events.logprobs[static_cast<size_t>(i)];
    if (i > logprobs.begin) out += ',';
    append_token(out, token.bytes, token.logprob);
    out += ",\"top_logprobs\":[";
    for (int64_t k = token.top.begin; k < token.top.end; ++k) {
      const TopLogprob& top = events.top_logprobs[static_cast<size_t>(k)];
      if (k > token.top.begin) out += ',';
      append_token(out, top.bytes, top.logprob);
      out += '}';
    }
    out += "]}";
  }
}

}  // namespace deepinfer
