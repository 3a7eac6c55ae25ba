// SPDX-License-Identifier: MIT
// Every recorded request of testdata/codec/requests.jsonl.gz, read as the original reads it, defects repaired.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "protocol/encode_record.h"

namespace deepinfer {
namespace {

const std::string kFolder = std::string(DEEPINFER_TESTDATA) + "/codec/";

const RecordEncoder& encoder() {
  static const RecordEncoder* made = [] {
    auto tokenizer = Tokenizer::load(kFolder + "tokenizer_v41.json.gz");
    CHECK(tokenizer.ok());
    auto encoder = RecordEncoder::create(tokenizer.value(), true);
    CHECK(encoder.ok());
    return new RecordEncoder(std::move(encoder).value());
  }();
  return *made;
}

std::vector<Json> records() {
  const auto text = read_file(kFolder + "requests.jsonl.gz");
  CHECK(text.ok());
  JsonLimits limits;
  limits.refuse_duplicate_keys = false;
  limits.wide_integers = true;
  limits.depth_max = 200;
  std::vector<Json> list;
  std::string_view rest = text.value();
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    auto record = parse_json(rest.substr(0, end), limits);
    CHECK(record.ok());
    list.push_back(std::move(record).value());
    rest.remove_prefix(end + 1);
  }
  return list;
}

// The part of a message that stands before a library's own words.
std::string own_words(const std::string& message) {
  for (const char* start :
       {"Invalid schema for function '", "Invalid tool parameters schema : ", "Invalid json schema: "})
    if (message.starts_with(start)) return message.substr(0, message.find(": ", std::string_view(start).size() - 2));
  return "";
}

void expect_same_error(const Json& expected, const Json& result) {
  const Json* got = result.find("error");
  ASSERT_TRUE(got) << "expected a refusal: " << to_json(expected);
  EXPECT_EQ(*expected.find("status"), *got->find("status"));
  if (expected.find("stage")->as_string() == "parse") return;
  if (expected.find("exact")->as_bool()) {
    for (const char* key : {"message", "type", "param", "code"}) EXPECT_EQ(*expected.find(key), *got->find(key)) << key;
  } else {
    EXPECT_EQ(own_words(expected.find("message")->as_string()), own_words(got->find("message")->as_string()));
  }
}

bool close(const Json& a, const Json& b) {
  return std::abs(a.as_double() - b.as_double()) <= 1e-6 * std::abs(a.as_double());
}

void expect_same_result(const Json& expected, const Json& result) {
  ASSERT_FALSE(result.find("error")) << to_json(*result.find("error"));
  for (const auto& [key, value] : expected.as_object()) {
    const Json* got = result.find(key);
    ASSERT_TRUE(got) << key;
    if (key != "inference") {
      EXPECT_EQ(to_json(value), to_json(*got)) << key;
      continue;
    }
    for (const auto& [name, setting] : value.as_object()) {
      if (name == "temperature" || name == "top_p") EXPECT_TRUE(close(setting, *got->find(name))) << name;
      else EXPECT_EQ(to_json(setting), to_json(*got->find(name))) << name;
    }
  }
}

// What is right where the original is not, by the notes of the records.
void expect_right(const Json& record, const Json& result) {
  const std::string note = record.find("note")->as_string();
  ASSERT_FALSE(result.find("error")) << to_json(*result.find("error"));
  const std::string& prompt = result.find("prompt")->as_string();
  if (note == "strict tool with $defs") {
    const std::string defs = R"("$defs": {"N": {"type": "integer"}})";
    EXPECT_NE(prompt.find(defs), std::string::npos) << prompt;
    EXPECT_NE(result.find("inference")
                  ->find("constraint")
                  ->find("schema")
                  ->as_string()
                  .find(R"("$defs":{"N":{"type":"integer"}})"),
              std::string::npos);
  } else if (note == "client tool with type custom") {
    Json without = record;
    Json::Object& tool = without.find("request")->find("tools")->as_array()[0].as_object();
    std::erase_if(tool, [](const Json::Member& member) { return member.first == "type"; });
    EXPECT_EQ(prompt, encoder().encode(without).value().find("prompt")->as_string());
  } else {
    EXPECT_TRUE(prompt.ends_with(record.find("right")->find("prompt_tail")->as_string())) << prompt;
  }
}

}  // namespace

TEST(RequestGolden, EveryRecordedRequest) {
  const std::vector<Json> list = records();
  ASSERT_EQ(list.size(), 890u);
  for (const Json& record : list) {
    SCOPED_TRACE(record.find("id")->as_string() + " " + record.find("protocol")->as_string() + " " +
                 (record.find("note") ? record.find("note")->as_string() : ""));
    const auto result = encoder().encode(record);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const Json& expected = *record.find("expect");
    if (record.find("known_bug")) expect_right(record, result.value());
    else if (const Json* error = expected.find("error")) expect_same_error(*error, result.value());
    else expect_same_result(expected, result.value());
  }
}

}  // namespace deepinfer
