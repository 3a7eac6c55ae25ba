// SPDX-License-Identifier: MIT
// bfloat16 as storage; arithmetic happens in float. Rounding is to nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace deepinfer {

struct bf16 {
  uint16_t bits;
  bool operator==(const bf16&) const = default;
};

constexpr float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

constexpr bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((u >> 16) | 0x40)};
  return {static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16)};
}
constexpr float round_to_bf16(float x) { return to_float(to_bf16(x)); }

}  // namespace deepinfer
