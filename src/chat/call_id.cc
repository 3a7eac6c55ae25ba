// SPDX-License-Identifier: MIT
#include "chat/call_id.h"

#include <xxhash.h>

#include <algorithm>

namespace deepinfer {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
constexpr size_t kNumRandomCharacters = 20;
constexpr size_t kNumChecksumDigits = 4;

uint32_t checksum(std::string_view id_without_digits) {
  char packed[64];
  size_t length = 0;
  for (const char c : id_without_digits) {
    if (c != '_' && length < sizeof(packed)) packed[length++] = c;
  }
  return static_cast<uint32_t>(XXH3_64bits(packed, length) % 10000);
}

void append_digits(std::string& out, uint32_t value, size_t width) {
  char digits[10];
  size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value > 0);
  while (count < width) digits[count++] = '0';
  while (count > 0) out += digits[--count];
}

}  // namespace

void append_call_id(std::string& out, uint32_t call_idx, bool is_thinking_empty, Rng& rng) {
  const size_t begin = out.size();
  out += "call_";
  append_digits(out, call_idx, 2);
  out += '_';
  if (is_thinking_empty) out += "ET_";
  for (size_t i = 0; i < kNumRandomCharacters; ++i) {
    const uint64_t draw = uint64_t{rng.next_u32()} * kAlphabet.size();
    out += kAlphabet[draw >> 32];
  }
  append_digits(out, checksum(std::string_view(out).substr(begin)), kNumChecksumDigits);
}

bool has_call_id_checksum(std::string_view id) {
  if (id.size() < kNumChecksumDigits + 1) return false;
  const std::string_view digits = id.substr(id.size() - kNumChecksumDigits);
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return false;
  std::string expected;
  append_digits(expected, checksum(id.substr(0, id.size() - kNumChecksumDigits)), kNumChecksumDigits);
  return digits == expected;
}

bool has_empty_thinking_mark(std::string_view id) {
  return (id.size() > 11 && id.substr(8, 3) == "ET_") || (id.size() > 8 && id.substr(6, 2) == "ET");
}

}  // namespace deepinfer
