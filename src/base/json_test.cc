// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <gtest/gtest.h>

namespace deepinfer {

TEST(Json, RefusesDuplicateKeysAndNamesThePath) {
  const auto value = parse_json(R"({"a":{"b":1,"b":2}})");
  ASSERT_FALSE(value.ok());
  EXPECT_NE(value.status().message().find("\"b\" in a"), std::string::npos) << value.status().message();
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":}", "01", "nul", "\"\x01\"", "[1] 2", "\"\xFF\""})
    EXPECT_FALSE(parse_json(text).ok()) << text;
}

TEST(Json, RefusesTooDeepNesting) { EXPECT_FALSE(parse_json(std::string(1000, '[') + std::string(1000, ']')).ok()); }

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

}  // namespace deepinfer
