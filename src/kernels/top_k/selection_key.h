// SPDX-License-Identifier: MIT
// The order of selections, shared by all rows.
#pragma once

#include <bit>
#include <cstdint>

namespace deepinfer {

// A key that orders as (score, then lower index first); -0 counts as +0 and NaN has a fixed place, so the order is
// total.
inline uint64_t selection_key(float score, uint32_t index) {
  const uint32_t u = std::bit_cast<uint32_t>(score + 0.f);
  const uint32_t ordered = u >> 31 ? ~u : u | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xFFFFFFFFu - index);
}
inline uint32_t index_of_key(uint64_t key) { return 0xFFFFFFFFu - static_cast<uint32_t>(key); }

}  // namespace deepinfer
