// SPDX-License-Identifier: MIT
#include "base/entropy.h"

#include <sys/random.h>

#include "base/check.h"

namespace deepinfer {

uint64_t entropy_u64() {
  uint64_t value = 0;
  CHECK(getrandom(&value, sizeof value, 0) == sizeof value);  // up to 256 bytes are never cut short
  return value;
}

std::string entropy_hex(size_t num_bytes) {
  CHECK(num_bytes <= 256);
  unsigned char bytes[256];
  CHECK(getrandom(bytes, num_bytes, 0) == static_cast<ssize_t>(num_bytes));
  std::string out;
  for (size_t i = 0; i < num_bytes; ++i) {
    out += "0123456789abcdef"[bytes[i] >> 4];
    out += "0123456789abcdef"[bytes[i] & 15];
  }
  return out;
}

}  // namespace deepinfer
