// SPDX-License-Identifier: MIT
#include "base/crc32c.h"

#include <nmmintrin.h>

#include <cstring>

namespace deepinfer {

// The instruction belongs to x86-64-v2, the baseline of the whole tree.
uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t before) {
  uint64_t state = ~before;
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    state = _mm_crc32_u64(state, word);
  }
  uint32_t crc = static_cast<uint32_t>(state);
  for (; at < bytes.size(); ++at) crc = _mm_crc32_u8(crc, bytes[at]);
  return ~crc;
}

}  // namespace deepinfer
