// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <gtest/gtest.h>

namespace deepinfer {

TEST(Json, RefusesDuplicateKeysAndNamesThePath) {
  const auto value = parse_json(R"({"a":{"b":1,"b":2}})");
  ASSERT_FALSE(value.ok());
  EXPECT_NE(value.status().message().find("\"b\" in a"), std::string::npos) << value.status().message();
}

TEST(Json, NamesThePathThroughArrays) {
  const auto value = parse_json(R"({"a":[0,{"b":[{"c":1,"c":2}]}]})");
  ASSERT_FALSE(value.ok());
  EXPECT_NE(value.status().message().find("\"c\" in a[1].b[0]"), std::string::npos) << value.status().message();
}

TEST(Json, LastDuplicateWinsAtTheFirstPlaceWhenAllowed) {
  JsonLimits limits;
  limits.refuse_duplicate_keys = false;
  EXPECT_EQ(to_json(parse_json(R"({"a":1,"b":2,"a":{"x":3}})", limits).value()), R"({"a":{"x":3},"b":2})");
  std::string wide = "{", expected = "{";
  for (int i = 0; i < 40; ++i)
    wide += "\"k" + std::to_string(i) + "\":0,", expected += "\"k" + std::to_string(i) + (i == 30 ? "\":7," : "\":0,");
  wide += "\"k30\":7}";
  expected.back() = '}';
  EXPECT_EQ(to_json(parse_json(wide, limits).value()), expected);
}

TEST(Json, WideIntegersAreRefusedOrReadAsDoubles) {
  EXPECT_FALSE(parse_json("[18446744073709551616]").ok());
  JsonLimits limits;
  limits.wide_integers = true;
  const auto value = parse_json(
      R"([-0,-0.5,"-0 18446744073709551616 \\",18446744073709551616,-9223372036854775809,18446744073709551615])",
      limits);
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(
      to_json(value.value()),
      R"([-0.0,-0.5,"-0 18446744073709551616 \\",18446744073709551616.0,-9223372036854775808.0,18446744073709551615])");
  EXPECT_FALSE(parse_json("[1e400]", limits).ok());
  EXPECT_FALSE(parse_json("[01]", limits).ok());
  EXPECT_TRUE(parse_json("-0", limits).ok());
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":}", "01", "nul", "\"\x01\"", "[1] 2", "\"\xFF\""})
    EXPECT_FALSE(parse_json(text).ok()) << text;
}

TEST(Json, RefusesTooDeepNesting) { EXPECT_FALSE(parse_json(std::string(1000, '[') + std::string(1000, ']')).ok()); }

TEST(Json, DepthLimitIsExact) {
  JsonLimits limits;
  limits.depth_max = 5;
  EXPECT_TRUE(parse_json("[[[[[]]]]]", limits).ok());
  EXPECT_TRUE(parse_json("[[[[[1]]]]]", limits).ok());
  EXPECT_TRUE(parse_json(R"({"a":[{"a":[{"a":1}]}]})", limits).ok());
  for (const char* text :
       {"[[[[[[]]]]]]", "[[[[[[1]]]]]]", R"({"a":[{"a":[{"a":[1]}]}]})", R"([0,[0,[0,[0,[0,{}]]]]])"})
    EXPECT_FALSE(parse_json(text, limits).ok()) << text;
}

TEST(Json, KeepsKeyOrderAndNumberKinds) {
  const auto value = parse_json(R"({"z":1,"a":1.0,"m":18446744073709551615,"n":-5})");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(to_json(value.value()), R"({"z":1,"a":1.0,"m":18446744073709551615,"n":-5})");
  EXPECT_TRUE(value.value().find("z")->is_integer());
  EXPECT_FALSE(value.value().find("a")->is_integer());
}

TEST(Json, EscapesOnlyWhatJsonDemands) { EXPECT_EQ(to_json(Json("a\"\\\n\x01 é/")), "\"a\\\"\\\\\\n\\u0001 é/\""); }

TEST(Json, ComparesObjectsWithoutOrder) {
  EXPECT_EQ(parse_json(R"({"a":1,"b":[2]})").value(), parse_json(R"({"b":[2],"a":1})").value());
  EXPECT_FALSE(parse_json("1").value() == parse_json("1.0").value());
}

TEST(Json, WideIntegersInShortTextsAreReadAsDoubles) {
  JsonLimits limits;
  limits.wide_integers = true;
  const auto value = parse_json("{\"a\":12345678901234567890123}", limits);
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(value.value().find("a")->as_double(), 12345678901234567890123.0);
}

}  // namespace deepinfer
