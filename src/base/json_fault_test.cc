// SPDX-License-Identifier: MIT
#include "base/json_fault.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace deepinfer {
namespace {

TEST(JsonFaultTest, TheFirstByteThatCannotStandThereIsFound) {
  const struct {
    const char* text;
    size_t offset;
  } cases[] = {{R"({"model": "m", "messages": [})", 28},
               {"", 0},
               {"{", 1},
               {"[1,]", 3},
               {"[1 2]", 3},
               {"{\"a\"}", 4},
               {"{\"a\":}", 5},
               {"{,}", 1},
               {"nul", 3},
               {"nulx", 3},
               {"01", 1},
               {"1.", 2},
               {"-", 1},
               {"1e+", 3},
               {"\"a\nb\"", 2},
               {R"("\x")", 2},
               {R"("\u12g4")", 5},
               {"\"a", 2},
               {"[]]", 2},
               {"{\"a\":1,}", 7},
               {"\"\xff\"", 1},
               {"'a'", 0},
               {"[1]//", 3},
               {"{a:1}", 1}};
  for (const auto& [text, offset] : cases) {
    EXPECT_EQ(find_json_fault(text), offset) << text;
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
}

TEST(JsonFaultTest, WhatIsJsonHasNone) {
  for (const char* text : {"null", " [1, -2.5e-3, 0, true, false] ", R"({"a":{"b":[[],{}]},"c":"\u00e9\n\"x"})",
                           "\"\xc3\xa9\"", "[[[[]]]]"}) {
    EXPECT_EQ(find_json_fault(text), std::string_view::npos) << text;
    EXPECT_TRUE(parse_json(text).ok()) << text;
  }
  EXPECT_EQ(find_json_fault(std::string(100'000, '[')), 100'000u);  // no depth is too much for it
}

TEST(JsonFaultTest, PositionsAreToldInBytesLinesAndColumns) {
  EXPECT_EQ(describe_position("ab\ncd", 0), "byte 0 (line 1, column 1)");
  EXPECT_EQ(describe_position("ab\ncd", 4), "byte 4 (line 2, column 2)");
  EXPECT_NE(parse_json("{\n  \"a\": ,\n}").status().message().find("byte 9 (line 2, column 8)"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
