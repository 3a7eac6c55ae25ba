// SPDX-License-Identifier: MIT
#include "tensor/plane_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace deepinfer {

// Places written out by hand from the text of packed_matrix.h, for 64 outputs by 96 columns: six steps a plane.
TEST(PlaneLayout, PutsCodesWhereItsDescriptionSays) {
  std::vector<uint8_t> codes(64 * 96), turned(codes.size()), scales(2 * 3);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  const Fp8Matrix rows{codes.data(), scales.data(), 64, 96};
  for (int64_t g = 0; g < 2; ++g) turn_group(rows, g, turned.data() + g * 32 * 96);
  // Output 0, column 0; column 1 is the next plane of the same four; column 16 is the next step.
  EXPECT_EQ(turned[0], codes[0]);
  EXPECT_EQ(turned[32], codes[1]);
  EXPECT_EQ(turned[128], codes[16]);
  // Column 4 begins the second four planes, behind six steps of 128 bytes.
  EXPECT_EQ(turned[6 * 128], codes[4]);
  // Output 37 is output 5 of the second group; column 59 is step 3 of plane 11, the last of the third four.
  EXPECT_EQ(turned[32 * 96 + ((2 * 6 + 3) * 4 + 3) * 32 + 5], codes[37 * 96 + 59]);
}

TEST(PlaneLayout, PutsHalfBytesAndTheirScalesWhereItsDescriptionSays) {
  std::vector<uint8_t> codes(64 * 48), turned(codes.size()), scales(64 * 3), turned_scales(scales.size());
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(i);
  const Fp4Matrix rows{codes.data(), scales.data(), 64, 96};
  for (int64_t g = 0; g < 2; ++g) turn_group(rows, g, turned.data() + g * 16 * 96, turned_scales.data() + g * 96);
  // Columns 0 to 7 of output 0 are four bytes of its row: the first step of the first eight planes.
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(turned[i], codes[i]);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(turned[4 + i], codes[48 + i]);   // output 1
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(turned[128 + i], codes[8 + i]);  // columns 16 to 23: the next step
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(turned[768 + i], codes[4 + i]);  // columns 8 to 15: the other planes
  // Output 37, columns 88 to 95: step 5 of the second eight planes.
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(turned[16 * 96 + ((6 + 5) * 32 + 5) * 4 + i], codes[37 * 48 + 44 + i]);
  EXPECT_EQ(turned_scales[96 + 2 * 32 + 5], scales[37 * 3 + 2]);
}

// Accessors see the same values in both orders, and turning back gives the first bytes.
TEST(PlaneLayout, HoldsTheSameValuesAndTurnsBack) {
  std::vector<uint8_t> codes(32 * 160), scales(32 * 5), turned(codes.size()), turned_scales(scales.size());
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 13 + i / 256);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(i * 3);
  std::vector<uint8_t> back(codes.size()), back_scales(scales.size());
  const Fp8Matrix fp8{codes.data(), scales.data(), 32, 160};
  turn_group(fp8, 0, turned.data());
  const Fp8Matrix fp8_planes{turned.data(), scales.data(), 32, 160, WeightLayout::kPlanes};
  for (int64_t o = 0; o < 32; ++o)
    for (int64_t k = 0; k < 160; ++k) ASSERT_EQ(fp8_planes.code(o, k), fp8.code(o, k)) << o << ", " << k;
  turn_group(fp8_planes, 0, back.data());
  EXPECT_EQ(back, codes);

  const Fp4Matrix fp4{codes.data(), scales.data(), 32, 160};  // the first half of the codes
  turn_group(fp4, 0, turned.data(), turned_scales.data());
  const Fp4Matrix fp4_planes{turned.data(), turned_scales.data(), 32, 160, WeightLayout::kPlanes};
  for (int64_t o = 0; o < 32; ++o)
    for (int64_t k = 0; k < 160; ++k) {
      ASSERT_EQ(fp4_planes.code(o, k), fp4.code(o, k)) << o << ", " << k;
      ASSERT_EQ(fp4_planes.scale(o, k), fp4.scale(o, k)) << o << ", " << k;
    }
  turn_group(fp4_planes, 0, back.data(), back_scales.data());
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + 32 * 80, codes.begin()));
  EXPECT_EQ(back_scales, scales);
}

}  // namespace deepinfer
