// SPDX-License-Identifier: MIT
// The C ABI as a caller sees it: the recorded requests, streams and texts give the recorded results, handles may be
// freed in any order, every misuse that can be told is an error with a message.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "bindings/c/deepinfer_codec.h"
#include "bindings/c/deepinfer_grammar.h"

namespace deepinfer {
namespace {

const std::string kFolder = std::string(DEEPINFER_TESTDATA) + "/codec/";
constexpr std::string_view kRecipe = R"({"compat": "recipe"})";
constexpr std::string_view kHello =
    R"({"model":"DeepSeek-V4.1-Flash","thinking":{"type":"disabled"},"messages":[{"role":"user","content":"Hello"}]})";

const deepinfer_tokenizer* tokenizer() {
  static const deepinfer_tokenizer* loaded = [] {
    deepinfer_tokenizer* made = nullptr;
    deepinfer_error error;
    CHECK(deepinfer_tokenizer_load((kFolder + "tokenizer_v41.json.gz").c_str(), &made, &error) == DEEPINFER_OK);
    return made;
  }();
  return loaded;
}

const deepinfer_codec* codec(std::string_view settings) {
  deepinfer_codec* made = nullptr;
  deepinfer_error error;
  CHECK(deepinfer_codec_new(tokenizer(), settings.data(), settings.size(), &made, &error) == DEEPINFER_OK);
  return made;
}
const deepinfer_codec* recipe_codec() {
  static const deepinfer_codec* made = codec(kRecipe);
  return made;
}

Json parsed(std::string_view text) {
  auto value = parse_json(text, {.depth_max = 200, .refuse_duplicate_keys = false, .wide_integers = true});
  EXPECT_TRUE(value.ok()) << value.status().message() << text.substr(0, 200);
  return value.ok() ? value.value() : Json();
}

std::vector<Json> records(const std::string& name) {
  const auto text = read_file(kFolder + name);
  CHECK(text.ok());
  std::vector<Json> list;
  for (std::string_view rest = text.value(); !rest.empty();) {
    const size_t end = rest.find('\n');
    list.push_back(parsed(rest.substr(0, end)));
    rest.remove_prefix(end + 1);
  }
  return list;
}

Json taken(deepinfer_text& text) {
  Json value = parsed({text.data, text.size});
  EXPECT_EQ(text.data[text.size], '\0');
  deepinfer_text_free(&text);
  EXPECT_EQ(text.data, nullptr);
  return value;
}

deepinfer_request* request(const deepinfer_codec* codec, const std::string& protocol, std::string_view body,
                           deepinfer_code expected = DEEPINFER_OK) {
  deepinfer_request* made = nullptr;
  deepinfer_error error;
  EXPECT_EQ(deepinfer_request_decode(codec, protocol.c_str(), body.data(), body.size(), &made, &error), expected)
      << error.message;
  return made;
}

TEST(CodecAbi, RecordedRequestsGiveTheirIds) {
  size_t num_accepted = 0, num_refused = 0;
  for (const Json& record : records("requests.jsonl.gz")) {
    if (record.find("known_bug") != nullptr || record.find("context_limit") != nullptr) continue;
    Json settings(Json::Object{{"compat", "recipe"}});
    if (const Json* options = record.find("options")) settings.set("options", *options);
    const deepinfer_codec* own = record.find("options") ? codec(to_json(settings)) : recipe_codec();
    const Json* text = record.find("request_text");
    const std::string body = text ? text->as_string() : to_json(*record.find("request"));
    const Json& expect = *record.find("expect");
    const Json* refusal = expect.find("error");
    deepinfer_request* got =
        request(own, record.find("protocol")->as_string(), body, refusal ? DEEPINFER_REFUSED : DEEPINFER_OK);
    ASSERT_NE(got, nullptr);
    if (refusal != nullptr) {
      ++num_refused;
      EXPECT_EQ(deepinfer_request_http_status(got), refusal->find("status")->as_int());
      const deepinfer_view error_body = deepinfer_request_error_body(got);
      EXPECT_TRUE(parsed({error_body.data, error_body.size}).find("error") != nullptr);
      EXPECT_EQ(deepinfer_request_ids(got).size, 0u);
    } else {
      ++num_accepted;
      const deepinfer_id_view ids = deepinfer_request_ids(got);
      EXPECT_EQ(Json(Json::Array(ids.data, ids.data + ids.size)), *expect.find("ids")) << to_json(record);
      const deepinfer_view prompt = deepinfer_request_prompt(got);
      EXPECT_EQ(std::string_view(prompt.data, prompt.size), expect.find("prompt")->as_string());
      deepinfer_text json{};
      deepinfer_error error;
      ASSERT_EQ(deepinfer_request_json(got, &json, &error), DEEPINFER_OK);
      const Json result = taken(json);
      for (const char* key : {"version", "special", "ids", "tools", "parsing", "resolved", "images"})
        EXPECT_EQ(*result.find(key), *expect.find(key)) << key;
    }
    if (own != recipe_codec()) deepinfer_codec_free(const_cast<deepinfer_codec*>(own));
    deepinfer_request_free(got);
  }
  EXPECT_EQ(num_accepted + num_refused, 880u);
  EXPECT_GT(num_accepted, 550u);
}

TEST(CodecAbi, AConversationTakenOutAndPutBackGivesTheSamePrompt) {
  size_t num_conversations = 0;
  for (const Json& record : records("requests.jsonl.gz")) {
    const Json& expect = *record.find("expect");
    if (record.find("known_bug") || record.find("options") || record.find("request_text") || expect.find("error"))
      continue;
    const std::string& protocol = record.find("protocol")->as_string();
    deepinfer_request* first = request(recipe_codec(), protocol, to_json(*record.find("request")));
    deepinfer_text conversation{}, again{};
    deepinfer_error error;
    ASSERT_EQ(deepinfer_request_conversation(first, &conversation, &error), DEEPINFER_OK) << error.message;
    deepinfer_request* second = nullptr;
    ASSERT_EQ(deepinfer_request_from_conversation(recipe_codec(), protocol.c_str(),
                                                  expect.find("version")->as_string().c_str(), conversation.data,
                                                  conversation.size, &second, &error),
              DEEPINFER_OK)
        << error.message;
    const deepinfer_view prompt = deepinfer_request_prompt(second);
    EXPECT_EQ(std::string_view(prompt.data, prompt.size), expect.find("prompt")->as_string());
    const deepinfer_id_view ids = deepinfer_request_ids(second);
    EXPECT_EQ(Json(Json::Array(ids.data, ids.data + ids.size)), *expect.find("ids"));
    ASSERT_EQ(deepinfer_request_conversation(second, &again, &error), DEEPINFER_OK);
    EXPECT_EQ(std::string_view(again.data, again.size), std::string_view(conversation.data, conversation.size));
    deepinfer_text_free(&conversation);
    deepinfer_text_free(&again);
    deepinfer_request_free(first);
    deepinfer_request_free(second);
    ++num_conversations;
  }
  EXPECT_GT(num_conversations, 550u);
}

TEST(CodecAbi, AWrongConversationIsAnErrorThatNamesTheMember) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "expected an object"},
      {R"({"message": []})", "message: no such member"},
      {R"({"messages": [{"role": "owner"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": 1}]})", "messages[0].content"},
      {R"({"messages": [{"content": "é", "images": [{"offset": 1}]}]})", "messages[0].images[0].offset"},
      {R"({"messages": [{"content": "e", "images": [{"offset": 2}]}]})", "messages[0].images[0].offset"},
      {R"({"messages": [{"tool_calls": [{"name": "f", "kind": 1}]}]})", "messages[0].tool_calls[0].kind"},
      {R"({"tools": [{"strict": 1}]})", "tools[0].strict"},
      {R"({"effort_percent": 101})", "effort_percent"},
  };
  for (const auto& [text, words] : cases) {
    deepinfer_request* made = nullptr;
    deepinfer_error error;
    EXPECT_EQ(deepinfer_request_from_conversation(recipe_codec(), "chat", "v41", text, std::string_view(text).size(),
                                                  &made, &error),
              DEEPINFER_INVALID_ARGUMENT);
    EXPECT_EQ(made, nullptr);
    EXPECT_NE(std::string(error.message).find(words), std::string::npos) << error.message;
  }
}

void push(deepinfer_stream* stream, const Json& chunk) {
  deepinfer_error error;
  deepinfer_code code = DEEPINFER_OK;
  if (const Json* ready = chunk.find("ready")) {
    const std::string& fingerprint = ready->find("fingerprint")->as_string();
    code = deepinfer_stream_push_prompt(stream, ready->find("prompt_tokens")->as_uint(),
                                        ready->find("cache_hit")->as_uint(), fingerprint.data(), fingerprint.size(),
                                        &error);
  } else if (const Json* ids = chunk.find("ids")) {
    std::vector<int32_t> list;
    for (const Json& id : ids->as_array()) list.push_back(static_cast<int32_t>(id.as_int()));
    code = deepinfer_stream_push_ids(stream, 0, list.data(), list.size(), nullptr, &error);
  } else if (const Json* text = chunk.find("text")) {
    code = deepinfer_stream_push_text(stream, 0, text->as_string().data(), text->as_string().size(),
                                      chunk.find("tokens")->as_uint(), &error);
  } else {
    const std::string& reason = chunk.find("finish")->as_string();
    code = deepinfer_stream_finish(stream, 0,
                                   reason == "stop"     ? DEEPINFER_FINISH_STOP
                                   : reason == "length" ? DEEPINFER_FINISH_LENGTH
                                                        : DEEPINFER_FINISH_CONTENT_FILTER,
                                   &error);
  }
  EXPECT_EQ(code, DEEPINFER_OK) << error.message;
}

// Random ends of call ids are `*` in the records.
void normalise(Json& value) {
  if (value.is_string()) {
    std::string& text = value.as_string();
    if (text.size() >= 10 && text.starts_with("call_") && text[7] == '_')
      text = text.substr(0, text.substr(8, 3) == "ET_" ? 11 : 8) + "*";
  } else if (value.is_array()) {
    for (Json& item : value.as_array()) normalise(item);
  } else if (value.is_object()) {
    for (auto& [key, item] : value.as_object()) normalise(item);
  }
}

TEST(CodecAbi, RecordedStreamsGiveTheirReplies) {
  size_t num_runs = 0;
  for (const Json& record : records("responses.jsonl.gz")) {
    if (record.find("known_bug") || record.find("loose") || record.find("setup")->find("logprobs")) continue;
    for (const auto& [protocol, expect] : record.find("expect")->as_object()) {
      SCOPED_TRACE(record.find("id")->as_string() + " " + protocol);
      deepinfer_request* from = request(recipe_codec(), protocol, to_json(*expect.find("request")));
      deepinfer_stream* stream = nullptr;
      deepinfer_error error;
      ASSERT_EQ(deepinfer_stream_new(from, nullptr, 0, &stream, &error), DEEPINFER_OK) << error.message;
      deepinfer_request_free(from);  // the stream keeps what it needs
      for (const Json& chunk : record.find("chunks")->as_array()) {
        if (deepinfer_stream_is_finished(stream, 0)) break;
        push(stream, chunk);
        for (size_t i = 0; i < deepinfer_stream_num_events(stream); ++i) {
          const deepinfer_view data = deepinfer_stream_event_data(stream, i);
          EXPECT_TRUE(parsed({data.data, data.size}).is_object());
          EXPECT_EQ(deepinfer_stream_event_name(stream, i) == nullptr, protocol == "chat");
        }
      }
      deepinfer_stream_finish(stream, 0, DEEPINFER_FINISH_NONE, &error);
      deepinfer_text text{};
      ASSERT_EQ(deepinfer_stream_final(stream, &text, &error), DEEPINFER_OK);
      Json got = taken(text), want = *expect.find("final");
      normalise(got);
      normalise(want);
      EXPECT_TRUE(got == want) << "\n got  " << to_json(got) << "\n want " << to_json(want);
      deepinfer_stream_free(stream);
      ++num_runs;
    }
  }
  EXPECT_GT(num_runs, 1000u);
}

TEST(CodecAbi, RecordedTextsGiveTheirIdsAndBack) {
  for (const Json& record : records("tokenizer.jsonl.gz")) {
    deepinfer_error error;
    if (const Json* text = record.find("text")) {
      for (const bool with_added : {false, true}) {
        const Json* want = with_added ? record.find("ids_with_added") : nullptr;
        deepinfer_ids ids{};
        ASSERT_EQ(deepinfer_tokenizer_encode(tokenizer(), text->as_string().data(), text->as_string().size(),
                                             with_added, &ids, &error),
                  DEEPINFER_OK);
        EXPECT_EQ(Json(Json::Array(ids.data, ids.data + ids.size)), want ? *want : *record.find("ids"));
        deepinfer_ids_free(&ids);
      }
      continue;
    }
    std::vector<int32_t> ids;
    for (const Json& id : record.find("decode_ids")->as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
    deepinfer_text whole{};
    ASSERT_EQ(deepinfer_tokenizer_decode(tokenizer(), ids.data(), ids.size(), &whole, &error), DEEPINFER_OK);
    EXPECT_EQ(std::string_view(whole.data, whole.size), record.find("decode_text")->as_string());
    deepinfer_detokenizer* detokenizer = nullptr;
    ASSERT_EQ(deepinfer_detokenizer_new(tokenizer(), &detokenizer, &error), DEEPINFER_OK);
    std::string joined;
    deepinfer_view piece{};
    for (const int32_t id : ids) {
      ASSERT_EQ(deepinfer_detokenizer_push(detokenizer, &id, 1, &piece, &error), DEEPINFER_OK);
      joined.append(piece.data, piece.size);
    }
    ASSERT_EQ(deepinfer_detokenizer_finish(detokenizer, &piece, &error), DEEPINFER_OK);
    joined.append(piece.data, piece.size);
    EXPECT_EQ(joined, std::string_view(whole.data, whole.size));
    deepinfer_text_free(&whole);
    deepinfer_detokenizer_free(detokenizer);
  }
}

struct Misuse {
  const char* settings;
  const char* words;  // of the message
};

TEST(CodecAbi, SettingsThatAreNotUnderstoodAreErrors) {
  for (const Misuse& misuse : {
           Misuse{"[]", "expected an object"},
           Misuse{"{", "settings"},
           Misuse{R"({"compat": "other"})", "settings.compat"},
           Misuse{R"({"compats": "recipe"})", "settings.compats: no such setting"},
           Misuse{R"({"options": {"default_thinking_mode": 1}})", "options.default_thinking_mode"},
           Misuse{R"({"models": {"m": "v5"}})", "settings.models.m"},
           Misuse{R"({"limits": {"bodies": 1}})", "settings.limits.bodies"},
           Misuse{R"({"limits": {"n": 0}})", "settings.limits.n"},
           Misuse{R"({"limits": {"depth": 1000000}})", "settings.limits.depth"},
           Misuse{R"({"context_limit": -1})", "settings.context_limit"},
       }) {
    deepinfer_codec* made = nullptr;
    deepinfer_error error;
    const size_t size = std::string_view(misuse.settings).size();
    EXPECT_EQ(deepinfer_codec_new(tokenizer(), misuse.settings, size, &made, &error), DEEPINFER_INVALID_ARGUMENT);
    EXPECT_EQ(made, nullptr);
    EXPECT_NE(std::string(error.message).find(misuse.words), std::string::npos) << error.message;
  }
  deepinfer_request* from = request(recipe_codec(), "chat", kHello);
  for (const Misuse& misuse : {
           Misuse{R"({"parsing": {"thinking_initial_stage": "Start"}})", "parsing.thinking_initial_stage"},
           Misuse{R"({"parsing": {"parse_tool_calls": 1}})", "parsing.parse_tool_calls"},
           Misuse{R"({"parsing": {"stop_sequences": [""]}})", "parsing.stop_sequences"},
           Misuse{R"({"response_id": 1})", "settings.response_id"},
           Misuse{R"({"created": 9223372036854775808})", "settings.created"},
       }) {
    deepinfer_stream* made = nullptr;
    deepinfer_error error;
    const size_t size = std::string_view(misuse.settings).size();
    EXPECT_EQ(deepinfer_stream_new(from, misuse.settings, size, &made, &error), DEEPINFER_INVALID_ARGUMENT);
    EXPECT_EQ(made, nullptr);
    EXPECT_NE(std::string(error.message).find(misuse.words), std::string::npos) << error.message;
  }
  deepinfer_request_free(from);
}

TEST(CodecAbi, LimitsAreSettingsAndRefusalsNameThem) {
  const deepinfer_codec* small = codec(R"({"limits": {"body_bytes": 64}})");
  deepinfer_request* refused = request(small, "chat", kHello, DEEPINFER_REFUSED);
  ASSERT_NE(refused, nullptr);
  EXPECT_GE(deepinfer_request_http_status(refused), 400);
  deepinfer_stream* stream = nullptr;
  deepinfer_error error;
  EXPECT_EQ(deepinfer_stream_new(refused, nullptr, 0, &stream, &error), DEEPINFER_INVALID_ARGUMENT);
  deepinfer_request_free(refused);
  deepinfer_codec_free(const_cast<deepinfer_codec*>(small));

  const deepinfer_codec* few = codec(R"({"limits": {"messages": 2, "tools": 1, "images": 1}})");
  for (const std::string_view text :
       {R"({"messages": [{}, {}, {}]})", R"({"messages": [{"tools": [{}]}], "tools": [{}]})",
        R"({"messages": [{"images": [{"offset": 0}, {"offset": 0}]}]})"}) {
    deepinfer_request* none = nullptr;
    EXPECT_EQ(deepinfer_request_from_conversation(few, "chat", "v41", text.data(), text.size(), &none, &error),
              DEEPINFER_RESOURCE_EXHAUSTED)
        << error.message;
  }
  deepinfer_codec_free(const_cast<deepinfer_codec*>(few));

  deepinfer_ids ids{};
  EXPECT_EQ(deepinfer_tokenizer_encode(tokenizer(), "", DEEPINFER_TEXT_BYTES_MAX + 1, 0, &ids, &error),
            DEEPINFER_RESOURCE_EXHAUSTED);
  deepinfer_text text{};
  EXPECT_EQ(deepinfer_tokenizer_decode(tokenizer(), nullptr, DEEPINFER_IDS_MAX + 1, &text, &error),
            DEEPINFER_RESOURCE_EXHAUSTED);
}

TEST(CodecAbi, NullsAndWrongNumbersAreErrors) {
  deepinfer_error error;
  deepinfer_ids ids{};
  deepinfer_text text{};
  deepinfer_tokenizer* none = nullptr;
  EXPECT_EQ(deepinfer_tokenizer_load(nullptr, &none, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_tokenizer_load("/nowhere/tokenizer.json", &none, &error), DEEPINFER_NOT_FOUND);
  EXPECT_NE(std::string(error.message).find("/nowhere"), std::string::npos);
  EXPECT_EQ(deepinfer_tokenizer_load("/nowhere/tokenizer.json", &none, nullptr), DEEPINFER_NOT_FOUND);
  EXPECT_EQ(deepinfer_tokenizer_from_json("{}", 2, &none, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_tokenizer_encode(nullptr, "a", 1, 0, &ids, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_tokenizer_encode(tokenizer(), nullptr, 1, 0, &ids, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_tokenizer_encode(tokenizer(), nullptr, 0, 0, &ids, &error), DEEPINFER_OK);
  deepinfer_ids_free(&ids);
  const int32_t outside[] = {0, static_cast<int32_t>(deepinfer_tokenizer_vocab_size(tokenizer()))};
  EXPECT_EQ(deepinfer_tokenizer_decode(tokenizer(), outside, 2, &text, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("ids[1]"), std::string::npos) << error.message;
  deepinfer_request* made = nullptr;
  EXPECT_EQ(deepinfer_request_decode(recipe_codec(), "smtp", "{}", 2, &made, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  deepinfer_request* from = request(recipe_codec(), "chat", kHello);
  deepinfer_stream* stream = nullptr;
  ASSERT_EQ(deepinfer_stream_new(from, nullptr, 0, &stream, &error), DEEPINFER_OK);
  EXPECT_EQ(deepinfer_stream_push_text(stream, 1, "a", 1, 1, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_stream_finish(stream, 0, 7, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_stream_fail(stream, 200, "x", 1, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_stream_is_finished(stream, 0), 0);
  EXPECT_EQ(deepinfer_stream_fail(stream, 500, "x", 1, &error), DEEPINFER_OK);
  EXPECT_EQ(deepinfer_stream_num_events(stream), 1u);
  EXPECT_EQ(deepinfer_stream_is_finished(stream, 0), 1);
  EXPECT_EQ(deepinfer_stream_push_text(stream, 0, "a", 1, 1, &error), DEEPINFER_OK);
  EXPECT_EQ(deepinfer_stream_num_events(stream), 0u);
  uint32_t max_tokens = 0;
  EXPECT_EQ(deepinfer_request_max_tokens(from, 100, 50, &max_tokens, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_request_max_tokens(from, 100, 1'000'000, &max_tokens, &error), DEEPINFER_OK);
  EXPECT_EQ(max_tokens, 8192u);  // decision 11: the default without thinking
  deepinfer_stream_free(stream);
  deepinfer_request_free(from);
  deepinfer_stream_free(nullptr);
  deepinfer_text_free(nullptr);
}

TEST(CodecAbi, LongMessagesAreCutAtAWholeCodePoint) {
  std::string path;
  for (int i = 0; i < 400; ++i) path += "é";
  for (const std::string start : {"", "x"}) {
    deepinfer_error error;
    deepinfer_tokenizer* none = nullptr;
    EXPECT_NE(deepinfer_tokenizer_load((start + path).c_str(), &none, &error), DEEPINFER_OK);
    const std::string message = error.message;
    EXPECT_LT(message.size(), sizeof error.message);
    EXPECT_TRUE(parse_json("\"" + message + "\"").ok()) << message;
  }
}

TEST(CodecAbi, OneCodecServesManyThreads) {
  const deepinfer_codec* shared = codec("");
  std::vector<std::thread> threads;
  std::vector<size_t> num_ids(4);
  for (size_t& count : num_ids) {
    threads.emplace_back([&count, shared] {
      for (int i = 0; i < 50; ++i) {
        deepinfer_request* made = request(shared, "chat", kHello);
        count += deepinfer_request_ids(made).size;
        deepinfer_request_free(made);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const size_t count : num_ids) EXPECT_EQ(count, num_ids[0]);
  deepinfer_codec_free(const_cast<deepinfer_codec*>(shared));
}

deepinfer_grammar* grammar(std::string_view settings, deepinfer_code expected = DEEPINFER_OK) {
  deepinfer_grammar* made = nullptr;
  deepinfer_error error;
  EXPECT_EQ(deepinfer_grammar_new(tokenizer(), settings.data(), settings.size(), &made, &error), expected)
      << error.message;
  return made;
}

std::vector<int32_t> encoded(std::string_view text) {
  deepinfer_ids ids;
  deepinfer_error error;
  EXPECT_EQ(deepinfer_tokenizer_encode(tokenizer(), text.data(), text.size(), 1, &ids, &error), DEEPINFER_OK);
  const std::vector<int32_t> list(ids.data, ids.data + ids.size);
  deepinfer_ids_free(&ids);
  return list;
}

TEST(CodecAbi, MatchersFollowGrammars) {
  deepinfer_grammar* made = grammar(R"({"regex": "(yes|no)[0-9]"})");
  deepinfer_matcher *matcher = nullptr, *fork = nullptr;
  deepinfer_error error;
  ASSERT_EQ(deepinfer_matcher_new(made, &matcher, &error), DEEPINFER_OK);
  const size_t num_words = deepinfer_grammar_num_words(made);
  deepinfer_grammar_free(made);  // the matcher keeps it
  std::vector<int32_t> drafts = encoded("yes");
  drafts.push_back(encoded("7")[0]);
  drafts.push_back(encoded("x")[0]);
  std::vector<uint32_t> words((drafts.size() + 1) * num_words);
  size_t num_rows = 0;
  ASSERT_EQ(deepinfer_matcher_fill_masks(matcher, drafts.data(), drafts.size(), words.data(), words.size(), &num_rows,
                                         &error),
            DEEPINFER_OK);
  EXPECT_EQ(num_rows, drafts.size()) << "x is not allowed";
  const auto is_set = [&](size_t row, int32_t id) {
    return (words[row * num_words + static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  };
  EXPECT_TRUE(is_set(0, drafts[0]));
  EXPECT_FALSE(is_set(0, drafts.back()));
  size_t num_accepted = 0;
  ASSERT_EQ(deepinfer_matcher_accept(matcher, drafts.data(), drafts.size(), &num_accepted, &error), DEEPINFER_OK);
  EXPECT_EQ(num_accepted, drafts.size() - 1);
  EXPECT_EQ(deepinfer_matcher_may_end(matcher), 1);
  ASSERT_EQ(deepinfer_matcher_fork(matcher, &fork, &error), DEEPINFER_OK);
  ASSERT_EQ(deepinfer_matcher_rollback(matcher, 1, &error), DEEPINFER_OK);
  EXPECT_EQ(deepinfer_matcher_may_end(matcher), 0);
  EXPECT_EQ(deepinfer_matcher_may_end(fork), 1);
  EXPECT_EQ(deepinfer_matcher_rollback(matcher, 99, &error), DEEPINFER_INVALID_ARGUMENT);
  deepinfer_matcher_free(matcher);
  deepinfer_matcher_free(fork);
  grammar(R"({"json_schema": {"properties": {"a": {"type": "array", "uniqueItems": true}}}})", DEEPINFER_UNIMPLEMENTED);
  grammar(R"({"regex": "a", "ebnf": "root ::= \"a\""})", DEEPINFER_INVALID_ARGUMENT);
  grammar(R"({"choice": []})", DEEPINFER_INVALID_ARGUMENT);
}

TEST(CodecAbi, RequestsSayWhatTheirAnswersMustBe) {
  deepinfer_request* free_form = request(codec(""), "chat", kHello);
  deepinfer_grammar* made = nullptr;
  deepinfer_error error;
  ASSERT_EQ(deepinfer_grammar_for_request(free_form, &made, &error), DEEPINFER_OK);
  EXPECT_EQ(made, nullptr);
  deepinfer_request_free(free_form);
  deepinfer_request* chosen =
      request(codec(""), "chat",
              R"({"model":"DeepSeek-V4.1-Flash","thinking":{"type":"disabled"},"guided_choice":["left","right"],)"
              R"("messages":[{"role":"user","content":"Where?"}]})");
  ASSERT_EQ(deepinfer_grammar_for_request(chosen, &made, &error), DEEPINFER_OK);
  deepinfer_matcher* matcher = nullptr;
  ASSERT_EQ(deepinfer_matcher_new(made, &matcher, &error), DEEPINFER_OK);
  std::vector<int32_t> answer = encoded("left<｜end▁of▁sentence｜>");
  size_t num_accepted = 0;
  ASSERT_EQ(deepinfer_matcher_accept(matcher, answer.data(), answer.size(), &num_accepted, &error), DEEPINFER_OK);
  EXPECT_EQ(num_accepted, answer.size());
  EXPECT_EQ(deepinfer_matcher_has_ended(matcher), 1);
  deepinfer_matcher_free(matcher);
  deepinfer_grammar_free(made);
  deepinfer_request_free(chosen);
}

}  // namespace
}  // namespace deepinfer
