// SPDX-License-Identifier: MIT
#include "store/bulk_crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace deepinfer {

uint32_t bulk_crc32c(std::span<const uint8_t> bytes) {
  uint32_t crc = 0xffffffffu;
  while (!bytes.empty()) {  // the library counts in int
    const size_t n = std::min(bytes.size(), size_t{1} << 30);
    crc = crc32_iscsi(const_cast<unsigned char*>(bytes.data()), static_cast<int>(n), crc);
    bytes = bytes.subspan(n);
  }
  return ~crc;
}

}  // namespace deepinfer
