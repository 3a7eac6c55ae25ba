// SPDX-License-Identifier: MIT
// Any bytes give ids inside the vocabulary or an error.
#include "base/check.h"
#include "tools/token_ids.h"

namespace deepinfer {

int fuzz_token_ids(const uint8_t* data, size_t size) {
  const auto ids = parse_token_ids({reinterpret_cast<const char*>(data), size}, 1000);
  if (!ids.ok()) return 0;
  for (const TokenId id : ids.value()) CHECK(id >= 0 && id < 1000);
  return 0;
}

}  // namespace deepinfer
