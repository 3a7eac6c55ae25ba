// SPDX-License-Identifier: MIT
#include "protocol/data_url.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace deepinfer {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; }
bool is_http_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_dropped_in_urls(char c) { return c == '\t' || c == '\n' || c == '\r'; }

bool is_token(std::string_view text) {
  if (text.empty()) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_http_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_http_space(text.back())) text.remove_suffix(1);
  return text;
}

// -1 for a character outside the alphabet.
int base64_value(char c) {
  static const std::array<int8_t, 256> kValues = [] {
    std::array<int8_t, 256> values;
    values.fill(-1);
    constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < kAlphabet.size(); ++i)
      values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
    return values;
  }();
  return kValues[static_cast<unsigned char>(c)];
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The body as the URL parser leaves it: escapes undone, tabs and line ends dropped, a fragment cut off.
std::string unescaped(std::string_view body) {
  std::string out;
  out.reserve(body.size());
  for (size_t i = 0; i < body.size() && body[i] != '#'; ++i) {
    const char c = body[i];
    if (is_dropped_in_urls(c)) continue;
    if (c == '%' && i + 2 < body.size() && hex_value(body[i + 1]) >= 0 && hex_value(body[i + 2]) >= 0) {
      out.push_back(static_cast<char>(hex_value(body[i + 1]) * 16 + hex_value(body[i + 2])));
      i += 2;
    } else {
      out.push_back(c);
    }
  }
  return out;
}

// Infra standard, "forgiving-base64 decode".
std::optional<std::string> forgiving_base64(const std::string& source) {
  std::string text;
  text.reserve(source.size());
  for (const char c : source)
    if (!is_http_space(c) && c != '\f') text.push_back(c);
  if (text.size() % 4 == 0)
    for (int i = 0; i < 2 && !text.empty() && text.back() == '='; ++i) text.pop_back();
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((num_bits += 6) >= 8) out.push_back(static_cast<char>(bits >> (num_bits -= 8)));
  }
  return out;
}

// "image/png;base64" -> "image/png", true.
bool take_base64_mark(std::string_view& header) {
  constexpr std::string_view kMark = "46esab";
  std::string_view rest = header;
  for (const char wanted : kMark) {
    while (!rest.empty() && is_dropped_in_urls(rest.back())) rest.remove_suffix(1);
    if (rest.empty() || lower(rest.back()) != wanted) return false;
    rest.remove_suffix(1);
  }
  while (!rest.empty() && (rest.back() == ' ' || is_dropped_in_urls(rest.back()))) rest.remove_suffix(1);
  if (rest.empty() || rest.back() != ';') return false;
  rest.remove_suffix(1);
  header = rest;
  return true;
}

}  // namespace

std::optional<DataUrl> parse_data_url(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  for (const char wanted : std::string_view("data:")) {
    while (!text.empty() && is_dropped_in_urls(text.front())) text.remove_prefix(1);
    if (text.empty() || lower(text.front()) != wanted) return std::nullopt;
    text.remove_prefix(1);
  }
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || text.find('#') < comma) return std::nullopt;
  DataUrl url;
  url.body = text.substr(comma + 1);
  std::string_view header = trimmed(text.substr(0, comma));
  url.is_base64 = take_base64_mark(header);
  std::string media;
  for (const char c : header.substr(0, header.find(';')))
    if (!is_dropped_in_urls(c)) media.push_back(lower(c));
  const std::string_view essence = trimmed(media);
  const size_t slash = essence.find('/');
  url.type = "text";
  url.subtype = "plain";
  if (slash != std::string_view::npos && is_token(essence.substr(0, slash)) &&
      is_token(trimmed(essence.substr(slash + 1)))) {
    url.type = essence.substr(0, slash);
    url.subtype = trimmed(essence.substr(slash + 1));
  }
  return url;
}

std::optional<std::string> data_url_bytes(const DataUrl& url) {
  std::string bytes = unescaped(url.body);
  return url.is_base64 ? forgiving_base64(bytes) : std::optional<std::string>(std::move(bytes));
}

bool is_strict_base64(std::string_view text) {
  if (text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  const std::string_view digits = text.substr(0, text.size() - padding);
  for (const char c : digits)
    if (base64_value(c) < 0) return false;
  const int unused_bits = padding == 0 || digits.empty() ? 0 : base64_value(digits.back()) & (padding == 2 ? 15 : 3);
  return unused_bits == 0;
}

}  // namespace deepinfer
