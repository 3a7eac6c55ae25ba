// SPDX-License-Identifier: MIT
#include "tensor/float8.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/bfloat16.h"

namespace deepinfer {

// Oracle by search: the nearest code, ties to the even code.
template <typename Decode>
uint8_t nearest(float x, int num_codes, const Decode& decode) {
  int best = 0;
  for (int code = 0; code < num_codes; ++code) {
    const double d = std::abs(std::abs(double(x)) - decode(code)), b = std::abs(std::abs(double(x)) - decode(best));
    if (d < b || (d == b && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best);
}

TEST(Float8, E4m3EncodesToTheNearestCode) {
  const auto decode = [](int code) { return double(e4m3_to_float(static_cast<uint8_t>(code))); };
  for (float x = 0x1p-12f; x < 500.f; x *= 1.0009f) EXPECT_EQ(float_to_e4m3(x), nearest(x, 127, decode)) << x;
  for (int code = 0; code < 126; ++code) {  // ties exactly between neighbours
    const float middle = static_cast<float>((decode(code) + decode(code + 1)) / 2);
    EXPECT_EQ(float_to_e4m3(middle), nearest(middle, 127, decode)) << middle;
    EXPECT_EQ(float_to_e4m3(-middle), nearest(middle, 127, decode) | 0x80);
  }
}

TEST(Float8, E4m3RoundTripsEveryCode) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F) { EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<uint8_t>(code))), code); }
  }
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7F)));
}

TEST(Float8, E2m1EncodesToTheNearestCodeWithTiesToEven) {
  const auto decode = [](int code) { return double(e2m1_to_float(static_cast<uint8_t>(code))); };
  for (float x = 0; x < 8; x += 1.f / 64) EXPECT_EQ(float_to_e2m1(x), nearest(x, 8, decode)) << x;
}

TEST(Float8, E8m0IsAPowerOfTwo) {
  EXPECT_EQ(e8m0_to_float(127), 1.0f);
  EXPECT_EQ(e8m0_to_float(115), 0x1p-12f);
  EXPECT_EQ(e8m0_to_float(0), 0x1p-127f);
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f).bits, to_bf16(1.0f).bits);         // tie, even below
  EXPECT_EQ(round_to_bf16(1.0f + 0x1p-7f + 0x1p-8f), 1.0f + 0x1p-6f);  // tie, even above
  EXPECT_TRUE(std::isnan(round_to_bf16(std::nanf(""))));
}

}  // namespace deepinfer
