// SPDX-License-Identifier: MIT
// The values of the e4m3 codes, for scales of cached rows: one load instead of a conversion. NaN codes become 480, as
// in the lanes.
#pragma once

namespace deepinfer {
namespace {

struct E4m3Values {
  float of_code[256];
};
constexpr E4m3Values make_e4m3_values() {
  E4m3Values values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    float value = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) / 512;
    for (int e = 1; e < exponent; ++e) value *= 2;
    values.of_code[code] = code & 0x80 ? -value : value;
  }
  return values;
}
constexpr E4m3Values kE4m3Values = make_e4m3_values();

}  // namespace
}  // namespace deepinfer
