// SPDX-License-Identifier: MIT
// Expected values: RFC 3720 B.4 and the check value of the CRC catalogue.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <vector>

namespace deepinfer {
namespace {

TEST(Crc32c, GivesThePublishedValues) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c({reinterpret_cast<const uint8_t*>(digits.data()), digits.size()}), 0xE3069283u);
  EXPECT_EQ(crc32c(std::vector<uint8_t>(32, 0x00)), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<uint8_t>(32, 0xFF)), 0x62A8AB43u);
  std::vector<uint8_t> rising(32);
  std::iota(rising.begin(), rising.end(), uint8_t{0});
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c(std::vector<uint8_t>(rising.rbegin(), rising.rend())), 0x113FDB5Cu);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, DoesNotDependOnHowTheBytesAreCut) {
  std::vector<uint8_t> bytes(1003);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + i / 7);
  const uint32_t whole = crc32c(bytes);
  for (const size_t cut : {0u, 1u, 7u, 8u, 9u, 500u, 1003u})
    EXPECT_EQ(crc32c(std::span(bytes).subspan(cut), crc32c(std::span(bytes).first(cut))), whole) << cut;
}

}  // namespace
}  // namespace deepinfer
