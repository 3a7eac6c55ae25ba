// SPDX-License-Identifier: MIT
// Four values a register: what the x86-64-v2 baseline has, spelled as the compilers' vector extension.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/lanes/exponential.h"

namespace deepinfer {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));

template <typename Vector>
Vector load(const float* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

inline Float4 splat(float x) { return Float4{x, x, x, x}; }

// Of a comparison's result.
inline bool any(Int4 mask) { return (mask[0] | mask[1] | mask[2] | mask[3]) != 0; }

// exp_in_lanes (kernels/lanes/exponential.h) on four values, operation by operation.
inline Float4 exp4(Float4 x) {
  x = x < kExpLow ? splat(kExpLow) : x;
  x = x > kExpHigh ? splat(kExpHigh) : x;
  const Float4 shifted = x * kLog2E + kRoundMagic;
  const Int4 n = std::bit_cast<Int4>(shifted) - std::bit_cast<int32_t>(kRoundMagic);
  const Float4 rounded = shifted - kRoundMagic;
  Float4 r = x - rounded * kLn2High;
  r = r - rounded * kLn2Low;
  Float4 y = splat(kExpPoly[0]);
  for (int i = 1; i < 6; ++i) y = y * r + kExpPoly[i];
  y = y * (r * r) + r;
  y = y + 1.f;
  const Int4 first = n >> 1, second = n - first;
  y = y * std::bit_cast<Float4>((first + 127) << 23);
  return y * std::bit_cast<Float4>((second + 127) << 23);
}

}  // namespace deepinfer
