// SPDX-License-Identifier: MIT
// JSON Schema against the public suites: a slice of both files, every case judged rightly or refused with keyword and
// path. `deepinfer bench grammar` runs all of them.
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "grammar/json_schema.h"
#include "grammar/machine.h"

namespace deepinfer {
namespace {

JsonLimits wide_limits() {
  JsonLimits limits;
  limits.depth_max = 512;
  limits.wide_integers = true;
  limits.refuse_duplicate_keys = false;
  return limits;
}

Result<std::unique_ptr<Machine>> compile(const Json& schema, PropertyOrder order = PropertyOrder::kAny) {
  auto program = std::make_unique<GrammarProgram>();
  ASSIGN_OR_RETURN(program->start, add_json_schema(*program, schema, {order, false}));
  program->find_nullable();
  return std::make_unique<Machine>(std::move(program));
}

bool accepts(Machine& machine, std::string_view text) {
  StateId state = machine.start();
  for (const char c : text) state = machine.step(state, static_cast<uint8_t>(c));
  return machine.is_accepting(state);
}

struct Tally {
  int correct = 0, refused = 0, wrong = 0;
};

void judge(const Json& schema, const Json& tests, const std::string& name, Tally& tally) {
  auto machine = compile(schema);
  if (!machine.ok()) {
    ++tally.refused;
    EXPECT_NE(machine.status().message().find(" at "), std::string::npos) << name << ": " << machine.status().message();
    return;
  }
  for (const Json& test : tests.as_array()) {
    const std::string text = to_json(*test.find("data"));
    const bool is_right = accepts(**machine, text) == test.find("valid")->as_bool();
    (is_right ? tally.correct : tally.wrong) += 1;
    EXPECT_TRUE(is_right) << name << ": " << text.substr(0, 200) << " of " << to_json(schema).substr(0, 400);
  }
}

std::vector<std::string> lines_of(const char* file) {
  auto text = read_file(std::string(DEEPINFER_TESTDATA "/grammar/") + file);
  EXPECT_TRUE(text.ok());
  std::vector<std::string> lines;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    lines.push_back(text->substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(JsonSchema, TestSuiteSlice) {
  Tally tally;
  for (const std::string& line : lines_of("json-schema-suite.jsonl.gz")) {
    auto file = parse_json(line, wide_limits());
    ASSERT_TRUE(file.ok());
    const std::string name = file->find("file")->as_string();
    if (name.ends_with("/format.json")) continue;  // there format only annotates
    int number = 0;
    for (const Json& group : file->find("groups")->as_array())
      if (number++ % 3 == 0)
        judge(*group.find("schema"), *group.find("tests"), name + ": " + group.find("description")->as_string(), tally);
  }
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_GT(tally.correct, 900);
}

TEST(JsonSchema, MaskBenchSlice) {
  Tally tally;
  int number = 0;
  for (const std::string& line : lines_of("maskbench-dev.jsonl.gz")) {
    if (number++ % 40 != 0 || line.size() > 100'000) continue;
    auto file = parse_json(line, wide_limits());
    ASSERT_TRUE(file.ok());
    judge(*file->find("schema"), *file->find("tests"), file->find("name")->as_string(), tally);
  }
  EXPECT_EQ(tally.wrong, 0);
  EXPECT_LE(tally.refused, 6);
}

void expect(const char* schema, std::initializer_list<const char*> good, std::initializer_list<const char*> bad,
            PropertyOrder order = PropertyOrder::kAny) {
  auto machine = compile(parse_json(schema, wide_limits()).value(), order);
  ASSERT_TRUE(machine.ok()) << schema << ": " << machine.status().message();
  for (const char* text : good) EXPECT_TRUE(accepts(**machine, text)) << schema << " on " << text;
  for (const char* text : bad) EXPECT_FALSE(accepts(**machine, text)) << schema << " on " << text;
}

TEST(JsonSchema, OrderOfMembers) {
  const char* schema =
      R"({"properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["c","a"],"type":"object"})";
  expect(schema, {R"({"c":1,"a":"","b":2})", R"({"x":0,"a":"","c":1})"}, {R"({"a":""})", R"({"c":1,"a":"","c":1})"});
  expect(schema, {R"({"b":2,"a":"","c":1,"x":0})", R"({"a":"","c":1})"},
         {R"({"a":"","b":2,"c":1})", R"({"x":0,"a":"","c":1})"}, PropertyOrder::kSchema);
}

TEST(JsonSchema, EscapesMeanTheirCharacters) {
  expect(R"({"const":"aé\ud83d\ude00\n\"\u0001"})", {R"("aé😀\n\"\u0001")", R"("aé😀\u000a\"\u0001")"},
         {R"("a\u00e9😀\n\"\u0001")", R"("aé😀\n\"\u0002")"});
  expect(R"({"maxLength":1})", {R"("😀")", R"("\n")", R"("\\")"}, {R"("ab")", R"("\ud83d")"});
  expect(R"({"properties":{"é\n":{"type":"null"}},"additionalProperties":false})", {R"({"é\n":null})", "{}"},
         {R"({"e\n":null})"});
}

TEST(JsonSchema, OneOfWithoutDiscriminator) {
  expect(R"({"oneOf":[{"properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},
                      {"properties":{"b":{"type":"integer"},"a":{}},"additionalProperties":false,"type":"object"}]})",
         {R"({"b":1})", R"({"a":"x"})", R"({"b":1,"a":1})", "3"}, {R"({"a":1})"});
  expect(R"({"oneOf":[{"multipleOf":2},{"multipleOf":3}],"type":"integer"})", {"2", "3", "9"}, {"6", "5", "12"});
}

TEST(JsonSchema, RefusalsNameKeywordAndPath) {
  auto refused = compile(parse_json(R"({"properties":{"a":{"items":{},"uniqueItems":true}}})").value());
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.status().message().starts_with("uniqueItems at #/properties/a:")) << refused.status().message();
  refused = compile(parse_json(R"({"items":{"$ref":"http://example.com/x"}})").value());
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.status().message().starts_with("$ref at #/items:")) << refused.status().message();
  const auto expect_refusal = [](const char* schema, const char* begin) {
    const auto result = compile(parse_json(schema).value());
    ASSERT_FALSE(result.ok()) << schema;
    EXPECT_TRUE(result.status().message().starts_with(begin)) << result.status().message();
  };
  expect_refusal(R"({"items":{"$dynamicRef":"http://example.com/x"}})", "$dynamicRef at #/items:");
  expect_refusal(R"({"items":{"$dynamicRef":"#/$defs/a"}})", "$dynamicRef at #/items:");
  expect_refusal(R"({"$recursiveAnchor":true,"items":{"$recursiveRef":"#"}})", "$recursiveRef at #/items:");
  expect_refusal(
      R"({"$defs":{"a":{"$dynamicAnchor":"n"},"b":{"$id":"x","$dynamicAnchor":"n"}},"not":{"$dynamicRef":"#n"}})",
      "$dynamicRef at #/not:");
}

TEST(JsonSchema, LargeSchemasEndWithinLimits) {
  std::string many = R"({"enum":[)";
  for (int i = 0; i < 100'000; ++i) many += (i > 0 ? ",\"value " : "\"value ") + std::to_string(i) + "\"";
  expect((many + "]}").c_str(), {R"("value 99999")"}, {R"("value 100000")"});
  expect(R"({"type":"string","minLength":99999,"maxLength":1000000})", {}, {"\"a\""});
  expect(
      R"({"$defs":{"a":{"properties":{"x":{"$ref":"#/$defs/b"}}},"b":{"items":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"})",
      {R"({"x":[{"x":[]}]})"}, {R"({"x":[{"x":[1,{"x":[{"x":)"});
  EXPECT_FALSE(
      compile(parse_json(R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})").value())
          .ok());
  std::string product = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i) {
    const std::string n = std::to_string(i);
    product += (i > 0 ? "," : "") + std::string(R"({"anyOf":[{"required":["a)") + n + R"("]},{"required":["b)" + n +
               R"("]}]})";
  }
  auto refused = compile(parse_json(product + "]}").value());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("too many"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
