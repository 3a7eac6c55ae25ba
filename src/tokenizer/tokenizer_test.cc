// SPDX-License-Identifier: MIT
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/conversation_cache.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

std::vector<TokenId> ids_of(const Json& value) {
  std::vector<TokenId> ids;
  for (const Json& id : value.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId id : ids) detokenizer.push(id, text);
  detokenizer.finish(text);
  return text;
}

TEST(Tokenizer, RefusesAFolderWithoutATokenizer) {
  const auto loaded = Tokenizer::load(DEEPINFER_TESTDATA);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), StatusCode::kNotFound);
  EXPECT_NE(loaded.status().message().find("no tokenizer.json"), std::string::npos);
}

TEST(Tokenizer, NamesAMissingControlToken) {
  const auto missing = model_a_tokenizer().require_control("<｜title｜>");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("<｜title｜>"), std::string::npos);
  EXPECT_NE(missing.status().message().find("model_a"), std::string::npos);
  EXPECT_EQ(*model_a_tokenizer().require_control("｜DSML｜"), 504);
}

// Expected values: the records of the published package (testdata/codec/README.md).
TEST(Tokenizer, GivesTheRecordedIdsOfTheReleasedFile) {
  const Tokenizer& tokenizer = released_tokenizer();
  const std::string lines = *read_file(DEEPINFER_TESTDATA "/codec/tokenizer.jsonl.gz");
  int num_texts = 0, num_decodes = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    const Json record = *parse_json(std::string_view(lines).substr(begin, end - begin));
    begin = end + 1;
    if (const Json* text = record.find("text")) {
      ++num_texts;
      const std::vector<TokenId> ids = ids_of(*record.find("ids"));
      ASSERT_EQ(tokenizer.encode(text->as_string()), ids) << to_json(record);
      ASSERT_EQ(tokenizer.decode(ids), text->as_string());
      ASSERT_EQ(streamed(tokenizer, ids), text->as_string());
      const Json* with_added = record.find("ids_with_added");
      ASSERT_EQ(tokenizer.encode_with_added(text->as_string()), with_added ? ids_of(*with_added) : ids)
          << to_json(record);
    } else {
      ++num_decodes;
      const std::vector<TokenId> ids = ids_of(*record.find("decode_ids"));
      ASSERT_EQ(tokenizer.decode(ids), record.find("decode_text")->as_string()) << to_json(record);
      ASSERT_EQ(streamed(tokenizer, ids), record.find("decode_text")->as_string()) << to_json(record);
    }
  }
  EXPECT_EQ(num_texts, 681);
  EXPECT_EQ(num_decodes, 105);
}

TEST(Tokenizer, GivesTheRecordedIdsOfModelA) {
  const Json cases = *parse_json(*read_file(DEEPINFER_TESTDATA "/model_a/golden/tokenizer_cases.json"));
  ASSERT_EQ(cases.as_array().size(), 11u);
  for (const Json& record : cases.as_array()) {
    const std::string& text = record.find("text")->as_string();
    EXPECT_EQ(model_a_tokenizer().encode_with_added(text), ids_of(*record.find("ids"))) << text;
    EXPECT_EQ(model_a_tokenizer().decode(ids_of(*record.find("ids"))), record.find("decoded")->as_string());
  }
}

void expect_package_ids(const Tokenizer& tokenizer, const std::string& path, int64_t num_tokens_min) {
  const std::string lines = *read_file(path);
  int64_t num_tokens = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    const Json record = *parse_json(std::string_view(lines).substr(begin, end - begin));
    begin = end + 1;
    const std::string& text = record.find("text")->as_string();
    const std::vector<TokenId> ids = ids_of(*record.find("ids"));
    num_tokens += static_cast<int64_t>(ids.size());
    const Json* with_added = record.find("ids_with_added");
    ASSERT_EQ(tokenizer.encode(text), ids) << to_json(record);
    ASSERT_EQ(tokenizer.encode_with_added(text), with_added ? ids_of(*with_added) : ids) << to_json(record);
    ASSERT_EQ(tokenizer.decode(ids), text);
  }
  EXPECT_GE(num_tokens, num_tokens_min);
}

// Expected values: the package tokenizers on generated text (testdata/tokenizer/PROVENANCE).
TEST(Tokenizer, GivesThePackagesIdsOfGeneratedText) {
  expect_package_ids(released_tokenizer(), DEEPINFER_TESTDATA "/tokenizer/differential_v41.jsonl.gz", 180000);
  expect_package_ids(model_a_tokenizer(), DEEPINFER_TESTDATA "/tokenizer/differential_model_a.jsonl.gz", 100000);
}

// Specification chat.md 1.3.
TEST(Tokenizer, NeverMakesAControlTokenOfPlainText) {
  const Tokenizer& tokenizer = released_tokenizer();
  EXPECT_EQ(tokenizer.encode("<｜User｜>"), (std::vector<TokenId>{30, 28217, 6756, 28217, 32}));
  EXPECT_EQ(tokenizer.encode("</think>"), (std::vector<TokenId>{1718, 37947, 32}));
  EXPECT_EQ(tokenizer.encode_with_added("</think>"), std::vector<TokenId>{128822});
  EXPECT_EQ(tokenizer.encode("don't"), (std::vector<TokenId>{20385, 1664}));
  EXPECT_EQ(tokenizer.encode("a\r\n\r\nb   c"), (std::vector<TokenId>{67, 204, 201, 204, 201, 68, 262, 274}));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id)) continue;
    for (const TokenId made : tokenizer.encode(tokenizer.token_bytes(id)))
      EXPECT_FALSE(tokenizer.is_control(made)) << id;
  }
}

// Specification chat.md 1.1: 128000 + 1280 ids, 1283 added tokens.
TEST(Tokenizer, KnowsEveryIdOfTheReleasedFile) {
  const Tokenizer& tokenizer = released_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 129280);
  int num_controls = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    num_controls += tokenizer.is_control(id);
    EXPECT_FALSE(tokenizer.token_bytes(id).empty()) << id;
    if (!tokenizer.is_control(id)) { EXPECT_EQ(tokenizer.find_token(tokenizer.token_bytes(id)), id); }
  }
  EXPECT_EQ(num_controls, 1283);
  EXPECT_EQ(tokenizer.find_control("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(tokenizer.find_control("<｜image｜>"), 129264);
  EXPECT_TRUE(tokenizer.is_special(129264));
  EXPECT_FALSE(tokenizer.is_special(128821));
  EXPECT_EQ(tokenizer.find_control("think"), std::nullopt);
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(129280), "");
}

// Specification chat.md 0: text around a message joins it, `Hi.` + `\n\n<` is [23166,339,30].
TEST(Tokenizer, JoinsNeighbouringTextOfAPrompt) {
  Prompt prompt;
  prompt.add_control(0, "<｜begin▁of▁sentence｜>");
  prompt.pieces.push_back({false, -1, "Hi."});
  prompt.pieces.push_back({false, -1, "\n\n<"});
  EXPECT_EQ(released_tokenizer().encode(prompt), (std::vector<TokenId>{0, 23166, 339, 30}));
  ConversationCache cache(shared_released_tokenizer());
  EXPECT_EQ(cache.encode(prompt), (std::vector<TokenId>{0, 23166, 339, 30}));
}

std::string story(int num_lines, uint32_t seed) {
  static constexpr const char* kWords[] = {" the",  "价格", "\t", "  ",     " x+=1;", "Ｚ",    "😀",
                                           "12345", "\r",   "é",  "\u0301", "```",    "don't", "。"};
  std::string text;
  for (int line = 0; line < num_lines; ++line) {
    for (int word = 0; word < 9; ++word) {
      seed = seed * 1664525 + 1013904223;
      text += kWords[(seed >> 16) % std::size(kWords)];
    }
    text += seed % 5 == 0 ? "\n\n" : "\n";
  }
  return text;
}

TEST(Tokenizer, EncodesInParallelAsItDoesAlone) {
  Prompt prompt;
  for (int turn = 0; turn < 20; ++turn) {
    prompt.add_control(128803, "<｜User｜>");
    prompt.add_text(story(turn * 150, static_cast<uint32_t>(turn)));
  }
  ThreadPool pool(3);
  const std::vector<TokenId> alone = released_tokenizer().encode(prompt);
  EXPECT_EQ(released_tokenizer().encode(prompt, &pool), alone);
  EXPECT_GT(alone.size(), 100000u);
}

TEST(ConversationCache, EncodesOnlyTheNewTurn) {
  ConversationCache cache(shared_released_tokenizer());
  Prompt prompt;
  int64_t new_bytes = 0;
  for (int turn = 0; turn < 12; ++turn) {
    const std::string text = story(100, static_cast<uint32_t>(turn + 100));
    new_bytes = static_cast<int64_t>(text.size());
    prompt.add_control(128803, "<｜User｜>");
    prompt.add_text(text);
    EXPECT_EQ(cache.encode(prompt), released_tokenizer().encode(prompt));
    EXPECT_LE(cache.num_bytes_encoded(), new_bytes);
  }
  // Text that grows at the end keeps its earlier pieces, too.
  prompt.add_text(story(3, 7));
  EXPECT_EQ(cache.encode(prompt), released_tokenizer().encode(prompt));
  EXPECT_LT(cache.num_bytes_encoded(), new_bytes / 2);
  // What a prompt does not use is forgotten.
  cache.encode(Prompt{});
  EXPECT_EQ(cache.num_bytes_held(), 0);
}

TEST(Detokenizer, GivesACodePointWithTheTokenThatCompletesIt) {
  // chat.md 1.3: the crab is three tokens; the bytes are F0 9F | A6 | 80.
  Detokenizer detokenizer(released_tokenizer());
  EXPECT_EQ(detokenizer.push(3574), "");
  EXPECT_EQ(detokenizer.push(102), "");
  EXPECT_EQ(detokenizer.push(225), "🦀");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, CondemnsBytesAsSoonAsTheyCannotContinue) {
  Detokenizer detokenizer(released_tokenizer());
  EXPECT_EQ(detokenizer.push(3574), "");
  EXPECT_EQ(detokenizer.push(90), "\uFFFDx");
  EXPECT_EQ(detokenizer.push(3574), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.push(102), "\uFFFD");  // a lone continuation byte
}

TEST(Detokenizer, EndsTextBeforeAControlToken) {
  Detokenizer detokenizer(released_tokenizer());
  EXPECT_EQ(detokenizer.push_delta(3574).text, "");
  const TextDelta delta = detokenizer.push_delta(128822);
  EXPECT_EQ(delta.text, "\uFFFD");
  EXPECT_EQ(delta.control_id, 128822);
  EXPECT_EQ(detokenizer.push_delta(90).text, "x");
}

// Every way to damage a few code points, streamed byte by byte, equals the whole decoded at once.
TEST(Detokenizer, StreamsIllFormedBytesAsTheWholeDecodes) {
  const Tokenizer& tokenizer = released_tokenizer();
  std::vector<TokenId> byte_ids;
  for (int byte = 0; byte < 256; ++byte)
    byte_ids.push_back(*tokenizer.find_token(std::string(1, static_cast<char>(byte))));
  const std::string base = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x80";
  for (size_t at = 0; at < base.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string damaged = base;
      damaged[at] = static_cast<char>(byte);
      std::vector<TokenId> ids;
      for (const char c : damaged) ids.push_back(byte_ids[static_cast<uint8_t>(c)]);
      ASSERT_EQ(streamed(tokenizer, ids), to_valid_utf8(damaged));
      ASSERT_EQ(tokenizer.decode(ids), to_valid_utf8(damaged));
    }
  }
}

}  // namespace
}  // namespace deepinfer
