// SPDX-License-Identifier: MIT
#include "tools/json_lines.h"

#include <gtest/gtest.h>

#include <sstream>

namespace deepinfer {
namespace {

// A line of any length takes no more memory than the limit, and the lines behind it are read.
TEST(JsonLines, ALineBeyondTheLimitIsCutAndTheNextOneIsWhole) {
  std::istringstream in("12345\n123456\n" + std::string(100'000, 'x') + "\n\nlast");
  std::string line;
  bool is_cut = true;
  ASSERT_TRUE(read_line(in, 5, line, is_cut));
  EXPECT_EQ(line, "12345");
  EXPECT_FALSE(is_cut);
  for (const char* begin : {"12345", "xxxxx"}) {
    ASSERT_TRUE(read_line(in, 5, line, is_cut));
    EXPECT_EQ(line, begin);
    EXPECT_TRUE(is_cut);
    EXPECT_LT(line.capacity(), 100u);
  }
  ASSERT_TRUE(read_line(in, 5, line, is_cut));
  EXPECT_EQ(line, "");
  ASSERT_TRUE(read_line(in, 5, line, is_cut));
  EXPECT_EQ(line, "last");
  EXPECT_FALSE(is_cut);
  EXPECT_FALSE(read_line(in, 5, line, is_cut));
}

}  // namespace
}  // namespace deepinfer
