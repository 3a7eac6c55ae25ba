// SPDX-License-Identifier: MIT
#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace deepinfer {
namespace {

constexpr size_t kAlphabetEnd = 0x100 + 68;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> written{};
  std::array<int16_t, kAlphabetEnd> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (int16_t& byte : a.byte) byte = -1;
  uint16_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    a.written[byte] = stands_for_itself(byte) ? static_cast<uint16_t>(byte) : next++;
    a.byte[a.written[byte]] = static_cast<int16_t>(byte);
  }
  return a;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_of_written(std::string_view written) {
  std::string bytes;
  bytes.reserve(written.size());
  while (!written.empty()) {
    const uint8_t first = static_cast<uint8_t>(written[0]);
    const CodePoint point = first < 0x80 ? CodePoint{first, 1} : decode_utf8(written);
    if (point.num_bytes == 0) return std::nullopt;
    const char32_t value = point.value;
    if (value >= kAlphabetEnd || kAlphabet.byte[value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[value]));
    written.remove_prefix(point.num_bytes);
  }
  return bytes;
}

std::string written_of_bytes(std::string_view bytes) {
  std::string written;
  for (const char byte : bytes) append_utf8(written, kAlphabet.written[static_cast<uint8_t>(byte)]);
  return written;
}

}  // namespace deepinfer
