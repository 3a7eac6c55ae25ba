// SPDX-License-Identifier: MIT
// Half-open ranges and the two integer divisions.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace deepinfer {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool operator==(const Range&) const = default;
};

template <typename T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <typename T>
constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}
template <typename T>
T exact_div(T a, T b) {
  CHECK(b != 0 && a % b == 0);
  return a / b;
}

}  // namespace deepinfer
