// SPDX-License-Identifier: MIT
// JSON as the prompts spell it, JSON Schema checks by draft, pattern syntax, and the closed form of strict schemas.
#include <gtest/gtest.h>

#include <string>

#include "chat/json_spelling.h"
#include "chat/pattern_syntax.h"
#include "chat/schema_check.h"
#include "chat/strict_schema.h"

namespace deepinfer {
namespace {

Json json(const std::string& text) { return parse_spelled_json(text).value(); }
std::string spelled(const std::string& text, NumberSpelling numbers) {
  return spelled_json(json(text), {numbers, true});
}
bool is_schema(const std::string& text) { return check_json_schema(json(text)).ok(); }
std::string strict(const std::string& text) {
  const auto closed = strict_tool_parameters(json(text));
  return closed.ok() ? to_json(closed.value()) : closed.status().message();
}

}  // namespace

// Expected spellings: chat.md 2.5, and Python's json.dumps for kPython.
TEST(JsonSpelling, Numbers) {
  const std::string source =
      "[300.0,-0,1e2,0.0001,0.00005,0.00001,1e-7,1.5e300,1e16,1e15,18446744073709551616,-1.25e-5,123.456]";
  EXPECT_EQ(spelled(source, NumberSpelling::kPlain),
            "[300.0, -0.0, 100.0, 0.0001, 0.00005, 0.00001, 1e-7, 1.5e+300, 1e+16, 1000000000000000.0, "
            "1.8446744073709552e+19, -0.0000125, 123.456]");
  EXPECT_EQ(spelled(source, NumberSpelling::kPython),
            "[300.0, -0.0, 100.0, 0.0001, 5e-05, 1e-05, 1e-07, 1.5e+300, 1e+16, 1000000000000000.0, "
            "1.8446744073709552e+19, -1.25e-05, 123.456]");
}

TEST(JsonSpelling, TextAndOrder) {
  EXPECT_EQ(spelled(R"({"b":1,"a":2,"b":"\u0001\u001f\u007f\u2028\/\b\f\n\r\t\"\\é"})", NumberSpelling::kPython),
            "{\"b\": \"\\u0001\\u001f\x7F\xE2\x80\xA8/\\b\\f\\n\\r\\t\\\"\\\\é\", \"a\": 2}");
}

TEST(PatternSyntax, WhatIsAPattern) {
  for (const char* good : {"", "a{2,3}?", "(?<n>a)\\k<n>", "\\p{Lu}\\p{Script=Greek}", "[a-z\\d]", "(?=x)y", "(a)\\1",
                           "\\u0041\\x41\\cA", "a++", "[[:alpha:]]"})
    EXPECT_TRUE(check_pattern_syntax(good).ok()) << good;
  for (const char* bad : {"(", ")", "[a", "*a", "a**", "a{2,1}", "\\", "\\p{Foo}", "[b-a]", "(?<n>a)(?<n>b)", "\\1",
                          "\\u{110000}", "(?=a)*", "a{"})
    EXPECT_FALSE(check_pattern_syntax(bad).ok()) << bad;
  EXPECT_FALSE(check_pattern_syntax(std::string(100'000, '(')).ok());
}

// Keywords of the drafts' meta-schemas.
TEST(SchemaCheck, Keywords) {
  for (const char* good :
       {"true", "{}", R"({"type":["string","null"],"minLength":1.0})", R"({"unknown":3})",
        R"({"properties":{"a":false}})", R"({"$schema":"http://json-schema.org/draft-07/schema#","items":[{}]})",
        R"({"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true})"})
    EXPECT_TRUE(is_schema(good)) << good;
  for (const char* bad :
       {"3", "[]", R"({"type":"foo"})", R"({"type":[]})", R"({"required":["a","a"]})", R"({"items":[{}]})",
        R"({"minLength":-1})", R"({"multipleOf":0})", R"({"properties":{"a":{"pattern":"("}}})", R"({"allOf":[]})",
        R"({"$schema":"foo"})", R"({"$id":"x y"})",
        R"({"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMinimum":true})"})
    EXPECT_FALSE(is_schema(bad)) << bad;
}

TEST(SchemaCheck, References) {
  for (const char* good :
       {R"({"$ref":"#"})", R"({"properties":{"a":{"$ref":"#/$defs/x%20y"}},"$defs":{"x y":{}}})",
        R"({"$ref":"#n","$defs":{"a":{"$anchor":"n"}}})", R"({"$defs":{"unused":{"$ref":"#/nope"}}})",
        R"({"$id":"http://a.b/c","$defs":{"d":{"$id":"d"}},"properties":{"x":{"$ref":"d"}}})",
        R"({"$ref":"https://json-schema.org/draft/2020-12/schema"})", R"({"const":{"$ref":"#/nope"}})"})
    EXPECT_TRUE(is_schema(good)) << good;
  for (const char* bad : {R"({"$ref":"#/nope"})", R"({"$ref":"#n"})", R"({"$ref":"http://x/y"})",
                          R"({"$defs":{"a":{"$ref":"http://x/y"}}})", R"({"properties":{"a":{"$ref":"#/b"}},"b":3})"})
    EXPECT_FALSE(is_schema(bad)) << bad;
}

TEST(StrictSchema, ClosedForm) {
  EXPECT_EQ(strict("null"), R"({"type":"object","properties":{},"additionalProperties":false,"required":[]})");
  EXPECT_EQ(
      strict(
          R"({"description":"d","title":"t","properties":{"a":{"minLength":1,"enum":["x"],"type":"string"}},"type":"object"})"),
      R"({"type":"object","properties":{"a":{"type":"string","enum":["x"]}},"additionalProperties":false,"required":["a"],"description":"d"})");
  // Definitions stay beside the references to them; what does not fit the form stays as it is.
  EXPECT_EQ(
      strict(
          R"({"type":"object","properties":{"n":{"$ref":"#/$defs/N"}},"$defs":{"N":{"type":"integer","title":"t"},"M":{"oneOf":[]},"K":{"anyOf":3}}})"),
      R"({"type":"object","properties":{"n":{"$ref":"#/$defs/N"}},"additionalProperties":false,"required":["n"],"$defs":{"N":{"type":"integer"},"M":{"oneOf":[]},"K":{"anyOf":3}}})");
}

TEST(StrictSchema, RefusalsInTheirOrder) {
  EXPECT_EQ(strict(R"({"type":"string"})"), "The top level of the function parameters schema must be an object.");
  EXPECT_EQ(strict(R"({"type":"object","properties":{"a":{"type":"object"}},"required":["z"]})"),
            "An object with no properties is not allowed.");
  EXPECT_EQ(
      strict(R"({"type":"object","properties":{"a":{"type":"null"}},"required":["z"],"additionalProperties":true})"),
      "Required property 'z' not found in object");
  EXPECT_EQ(strict(R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a","a"]})"),
            "Duplicate required property 'a'");
  EXPECT_EQ(strict(R"({"type":"object","properties":{"a":{"type":"null"}},"required":[]})"),
            "Required properties must match all properties in the object");
  EXPECT_EQ(strict(R"({"type":"object","additionalProperties":true})"), "additionalProperties should not be true");
  EXPECT_TRUE(strict(R"({"type":"object","properties":{"a":{"type":"string","format":"date"}}})")
                  .starts_with("Invalid tool parameters schema : "));
  EXPECT_EQ(strict_response_schema(json(R"({"type":"object"})")).status().message(),
            "An object with no properties is not allowed.");
}

}  // namespace deepinfer
