// SPDX-License-Identifier: MIT
#include "tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

const Json& sound_file() {
  static const Json file = *parse_json(*read_file(DEEPINFER_TESTDATA "/model_a/tokenizer.json"));
  return file;
}

void expect_refused(const Json& file, std::string_view words) {
  const auto read = read_tokenizer_json(to_json(file));
  ASSERT_FALSE(read.ok()) << words;
  EXPECT_NE(read.status().message().find(words), std::string::npos) << read.status().message();
}

TEST(TokenizerJson, ReadsASoundFile) { EXPECT_TRUE(read_tokenizer_json(to_json(sound_file())).ok()); }

TEST(TokenizerJson, RefusesWhatIsNoObject) {
  EXPECT_FALSE(read_tokenizer_json("").ok());
  EXPECT_FALSE(read_tokenizer_json("[]").ok());
  EXPECT_FALSE(read_tokenizer_json("{}").ok());
  EXPECT_FALSE(read_tokenizer_json("null").ok());
}

TEST(TokenizerJson, NamesThePlaceOfAnotherKindOfTokenizer) {
  Json file = sound_file();
  file.set("normalizer", *parse_json(R"({"type":"NFC"})"));
  expect_refused(file, "normalizer: expected none");
  file = sound_file();
  file.find("pre_tokenizer")->find("pretokenizers")->as_array()[0].find("pattern")->set("Regex", "\\d");
  expect_refused(file, "pre_tokenizer.pretokenizers[0].pattern");
  file = sound_file();
  file.find("model")->set("byte_fallback", true);
  expect_refused(file, "model.byte_fallback");
  file = sound_file();
  file.find("model")->set("type", "Unigram");
  expect_refused(file, "model.type: expected BPE");
  file = sound_file();
  file.find("added_tokens")->as_array()[3].set("lstrip", true);
  expect_refused(file, "added_tokens[3].lstrip");
  file = sound_file();
  file.set("decoder", nullptr);
  expect_refused(file, "decoder");
}

TEST(TokenizerJson, NamesThePlaceOfDamage) {
  Json file = sound_file();
  file.find("model")->find("merges")->as_array()[7] = "Ġ\u2603 x";
  expect_refused(file, "model.merges[7]");
  file = sound_file();
  file.find("model")->find("merges")->as_array()[9] = file.find("model")->find("merges")->as_array()[8];
  expect_refused(file, "model.merges[9]: expected a pair not listed before");
  file = sound_file();
  file.find("model")->find("vocab")->as_object()[300].second = 4;
  expect_refused(file, "an id used once");
  file = sound_file();
  file.find("model")->find("vocab")->as_object()[300].second = int64_t{1} << 40;
  expect_refused(file, "expected an id in [0, 1048320)");
  file = sound_file();
  file.find("added_tokens")->as_array()[4] = file.find("added_tokens")->as_array()[3];
  expect_refused(file, "added_tokens[4]");
}

TEST(TokenizerJson, NamesAByteWithoutToken) {
  Json file = sound_file();
  for (Json::Member& member : file.find("model")->find("vocab")->as_object())
    if (member.first == "A") member.first = "AAAAAAAA";
  file.find("model")->find("merges")->as_array().clear();
  expect_refused(file, "no token for the byte 0x41");
}

TEST(TokenizerJson, KeepsItsLimits) {
  const std::string text = to_json(sound_file());
  EXPECT_FALSE(read_tokenizer_json(text, {.bytes_max = text.size() - 1}).ok());
  EXPECT_EQ(read_tokenizer_json(text, {.ids_max = 100}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(read_tokenizer_json(text, {.token_bytes_max = 8}).status().code(), StatusCode::kResourceExhausted);
}

// Newer files write a merge as a pair; ids are the same.
TEST(TokenizerJson, ReadsMergesWrittenAsPairs) {
  Json file = sound_file();
  for (Json& merge : file.find("model")->find("merges")->as_array()) {
    const std::string text = merge.as_string();
    const size_t space = text.find(' ');
    merge = Json::Array{text.substr(0, space), text.substr(space + 1)};
  }
  auto tokenizer = Tokenizer::from_json(to_json(file));
  ASSERT_TRUE(tokenizer.ok());
  const std::string text = "The  model, weight!  12345 straße";
  EXPECT_EQ((*tokenizer)->encode(text), model_a_tokenizer().encode(text));
}

}  // namespace
}  // namespace deepinfer
