// SPDX-License-Identifier: MIT
#include "base/utf8.h"

#include <cstring>

namespace deepinfer {
namespace {

struct Lead {
  uint8_t num_bytes;  // 0: not a lead byte
  uint8_t second_min, second_max;
};

Lead classify(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Number of leading bytes of `text` that fit the code point its first byte announces, at least 1 for a lead byte.
size_t matching_bytes(std::string_view text, Lead lead) {
  if (lead.num_bytes < 2 || text.size() < 2) return lead.num_bytes == 0 ? 0 : 1;
  const uint8_t second = static_cast<uint8_t>(text[1]);
  if (second < lead.second_min || second > lead.second_max) return 1;
  size_t n = 2;
  while (n < lead.num_bytes && n < text.size() && (static_cast<uint8_t>(text[n]) & 0xC0) == 0x80) ++n;
  return n;
}

}  // namespace

CodePoint decode_utf8(std::string_view text) {
  if (text.empty()) return {};
  const uint8_t first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {first, 1};
  const Lead lead = classify(first);
  if (lead.num_bytes == 0 || matching_bytes(text, lead) != lead.num_bytes) return {};
  char32_t value = first & (0x7F >> lead.num_bytes);
  for (size_t i = 1; i < lead.num_bytes; ++i) value = (value << 6) | (static_cast<uint8_t>(text[i]) & 0x3F);
  return {value, lead.num_bytes};
}

size_t ill_formed_prefix(std::string_view text) {
  const size_t n = matching_bytes(text, classify(static_cast<uint8_t>(text[0])));
  return n == 0 ? 1 : n;
}

bool is_incomplete_utf8(std::string_view text) {
  if (text.empty()) return false;
  const Lead lead = classify(static_cast<uint8_t>(text[0]));
  return lead.num_bytes > text.size() && matching_bytes(text, lead) == text.size();
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    if (text.size() >= 8) {  // ASCII goes by eight
      uint64_t word;
      std::memcpy(&word, text.data(), 8);
      if ((word & 0x8080808080808080u) == 0) {
        text.remove_prefix(8);
        continue;
      }
    }
    const CodePoint c = decode_utf8(text);
    if (c.num_bytes == 0) return false;
    text.remove_prefix(c.num_bytes);
  }
  return true;
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3F))); };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    tail(0);
    return;
  }
  if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    tail(6);
    tail(0);
    return;
  }
  out.push_back(static_cast<char>(0xF0 | (c >> 18)));
  tail(12);
  tail(6);
  tail(0);
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const CodePoint c = decode_utf8(bytes);
    const size_t n = c.num_bytes ? c.num_bytes : ill_formed_prefix(bytes);
    if (c.num_bytes) out.append(bytes.substr(0, n));
    else out.append("\xEF\xBF\xBD");
    bytes.remove_prefix(n);
  }
  return out;
}

std::string_view utf8_prefix(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xC0) == 0x80) --bytes_max;
  return text.substr(0, bytes_max);
}

}  // namespace deepinfer
