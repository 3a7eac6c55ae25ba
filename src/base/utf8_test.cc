// SPDX-License-Identifier: MIT
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace deepinfer {

// The expected replacement counts are those of the Unicode standard, section 3.9, table 3-8 and following.
TEST(Utf8, ReplacesEachMaximalIllFormedSubpartOnce) {
  const std::string kReplacement = "\xEF\xBF\xBD";
  const auto repeated = [&](int n) {
    std::string s;
    while (n-- > 0) s += kReplacement;
    return s;
  };
  EXPECT_EQ(to_valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), repeated(8) + "A");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), repeated(8) + "A");
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), repeated(4) + "A");
}

TEST(Utf8, RoundTripsTheBordersOfEachLength) {
  for (const char32_t c : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(decode_utf8(text).value, c);
    EXPECT_EQ(decode_utf8(text).num_bytes, text.size());
    for (size_t n = 1; n < text.size(); ++n) EXPECT_TRUE(is_incomplete_utf8(text.substr(0, n)));
  }
}

TEST(Utf8, PrefixCutsNoCodePoint) {
  EXPECT_EQ(utf8_prefix("aé東🦀", 100), "aé東🦀");
  EXPECT_EQ(utf8_prefix("aé東🦀", 9), "aé東");
  EXPECT_EQ(utf8_prefix("aé東🦀", 6), "aé東");
  EXPECT_EQ(utf8_prefix("aé東🦀", 5), "aé");
  EXPECT_EQ(utf8_prefix("aé", 2), "a");
  EXPECT_EQ(utf8_prefix("é", 1), "");
}

}  // namespace deepinfer
