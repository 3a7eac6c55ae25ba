// SPDX-License-Identifier: MIT
// The engine's C ABI as a caller sees it, on golden model A.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/json.h"
#include "bindings/engine/deepinfer_engine.h"

namespace deepinfer {
namespace {

struct Handle {
  deepinfer_engine* engine = nullptr;
  ~Handle() { deepinfer_engine_free(engine); }
};

std::string settings(const std::string& more = "") {
  return "{\"model\":\"" DEEPINFER_TESTDATA "/model_a\",\"threads\":1,\"context\":512" + more + "}";
}

deepinfer_code open(const std::string& text, Handle& handle, deepinfer_error* error = nullptr) {
  return deepinfer_engine_open(text.data(), text.size(), &handle.engine, error);
}

uint64_t submit(Handle& handle, const std::string& body) {
  uint64_t id = 0;
  EXPECT_EQ(deepinfer_engine_submit(handle.engine, body.data(), body.size(), &id, nullptr), DEEPINFER_OK);
  return id;
}

std::map<uint64_t, Json> run(Handle& handle) {
  std::map<uint64_t, Json> results;
  for (int32_t runs = 1; runs != 0;) {
    deepinfer_error error;
    EXPECT_EQ(deepinfer_engine_step(handle.engine, &runs, &error), DEEPINFER_OK) << error.message;
    for (int32_t has_result = 1; has_result != 0;) {
      deepinfer_text text;
      EXPECT_EQ(deepinfer_engine_take(handle.engine, &text, &has_result, nullptr), DEEPINFER_OK);
      if (has_result == 0) break;
      Json result = parse_json({text.data, text.size}).value();
      const uint64_t id = result.find("id")->as_uint();
      EXPECT_TRUE(results.emplace(id, std::move(result)).second);
      deepinfer_engine_text_free(&text);
      EXPECT_EQ(text.data, nullptr);
    }
  }
  return results;
}

const Json::Array& choices(const Json& result) {
  static const Json::Array none;
  const Json* found = result.find("choices");
  EXPECT_TRUE(found) << to_json(result);
  return found ? found->as_array() : none;
}

TEST(EngineAbi, SettingsAreCheckedByName) {
  Handle handle;
  deepinfer_error error;
  EXPECT_EQ(open("{\"modle\":1}", handle, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("modle"), std::string::npos) << error.message;
  EXPECT_EQ(open("{\"replay\":\"slow\"}", handle, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "settings: replay is \"slow\", expected fast, exact or off");
  EXPECT_EQ(open("{\"sequences\":0}", handle, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "settings: sequences is 0, expected 1 to 4096");
  EXPECT_EQ(open(settings(",\"host_kv_tokens\":1073741824"), handle, &error), DEEPINFER_RESOURCE_EXHAUSTED);
  EXPECT_NE(std::string(error.message).find("1073741824 tokens of KV need"), std::string::npos) << error.message;
  EXPECT_EQ(open("{\"model\":\"/no/such/folder\"}", handle, &error), DEEPINFER_NOT_FOUND) << error.message;
  EXPECT_EQ(handle.engine, nullptr);
  EXPECT_EQ(deepinfer_engine_open(nullptr, 0, nullptr, &error), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_engine_abi(), DEEPINFER_ENGINE_ABI);
}

TEST(EngineAbi, MissingArgumentsAreErrorsNotCrashes) {
  int32_t flag;
  uint64_t id;
  deepinfer_text text;
  EXPECT_EQ(deepinfer_engine_step(nullptr, &flag, nullptr), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_engine_take(nullptr, &text, &flag, nullptr), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_engine_submit(nullptr, "{}", 2, &id, nullptr), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_engine_describe(nullptr, &text, nullptr), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_engine_cancel(nullptr, 1, nullptr), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_engine_progress(nullptr).requests, 0u);
  deepinfer_engine_text_free(nullptr);
  deepinfer_engine_free(nullptr);
}

TEST(EngineAbi, AnswersPromptsTokensAndConversations) {
  Handle handle;
  deepinfer_error error;
  ASSERT_EQ(open(settings(), handle, &error), DEEPINFER_OK) << error.message;
  const uint64_t text = submit(handle, R"({"prompt":"abc","max_tokens":5,"temperature":0,"ignore_eos":true})");
  const uint64_t ids =
      submit(handle, R"({"prompt_token_ids":[0,100,101],"max_tokens":4,"temperature":0,"ignore_eos":true,
                         "logprobs":true,"top_logprobs":2})");
  const uint64_t chat = submit(
      handle, R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"n":2,"seed":5,"ignore_eos":true})");
  const uint64_t wrong = submit(handle, R"({"prompt_token_ids":[9999]})"), broken = submit(handle, "{");
  const uint64_t both = submit(handle, R"({"prompt":"a","messages":[]})");
  const auto results = run(handle);
  ASSERT_EQ(results.size(), 6u);
  EXPECT_EQ(choices(results.at(text))[0].find("token_ids")->as_array().size(), 5u);
  EXPECT_EQ(choices(results.at(text))[0].find("finish_reason")->as_string(), "length");
  EXPECT_EQ(results.at(ids).find("prompt_token_ids")->as_array(), (Json::Array{0, 100, 101}));
  const Json& with_logprobs = choices(results.at(ids))[0];
  EXPECT_EQ(with_logprobs.find("logprobs")->as_array().size(), 4u);
  EXPECT_EQ(with_logprobs.find("logprobs")->as_array()[0].find("top")->as_array().size(), 2u);
  EXPECT_EQ(choices(results.at(chat)).size(), 2u);
  EXPECT_EQ(choices(results.at(chat))[1].find("explain")->find("shared_tokens")->as_int(),
            static_cast<int64_t>(results.at(chat).find("prompt_token_ids")->as_array().size()));
  EXPECT_NE(results.at(wrong).find("error")->as_string().find("token ids of 0 to"), std::string::npos);
  EXPECT_TRUE(results.at(broken).find("error"));
  EXPECT_EQ(results.at(both).find("param")->as_string(), "messages");
  const deepinfer_engine_figures figures = deepinfer_engine_progress(handle.engine);
  EXPECT_EQ(figures.requests, 6u);
  EXPECT_EQ(figures.done, 6u);
  EXPECT_EQ(figures.output_tokens, 5u + 4u + 6u);
}

TEST(EngineAbi, TheSameTokensWithAndWithoutDraftsAndCancelledRequestsEnd) {
  const std::string body = R"({"prompt":"the same","max_tokens":20,"seed":3,"ignore_eos":true})";
  Json tokens[2];
  for (int drafts = 0; drafts < 2; ++drafts) {
    Handle handle;
    ASSERT_EQ(open(settings(drafts ? "" : ",\"drafts\":false"), handle), DEEPINFER_OK);
    const uint64_t id = submit(handle, body), cancelled = submit(handle, body);
    EXPECT_EQ(deepinfer_engine_cancel(handle.engine, cancelled, nullptr), DEEPINFER_OK);
    const auto results = run(handle);
    tokens[drafts] = *choices(results.at(id))[0].find("token_ids");
    EXPECT_EQ(choices(results.at(cancelled))[0].find("finish_reason")->as_string(), "abort");
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

}  // namespace
}  // namespace deepinfer
