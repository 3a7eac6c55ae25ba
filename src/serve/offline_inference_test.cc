// SPDX-License-Identifier: MIT
// What a request asks of the sampler, from its body to its result, on golden model A: each parameter shows in the
// tokens, the text or the log probabilities as its definition says.
#include "serve/offline_inference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "serve/step_loop_runs.h"

namespace deepinfer {
namespace {

const SystemClock kClock;

OfflineInference& inference() {
  static OfflineInference& made = *[] {
    OfflineOptions options;
    options.num_threads = 1;
    options.context_max = 512;
    auto opened = OfflineInference::open(load_model(DEEPINFER_TESTDATA "/model_a").value(), options, kClock);
    CHECK(opened.ok());
    return std::move(opened).value().release();
  }();
  return made;
}

// The result of {"prompt": "...", members}.
Json run(const std::string& members, const std::string& prompt = "tell me") {
  inference().submit("{\"prompt\":\"" + prompt + "\"," + members + "}");
  for (bool runs = true; runs;) {
    auto step = inference().step();
    CHECK(step.ok());
    runs = *step;
  }
  auto result = inference().take_result();
  CHECK(result && !inference().take_result());
  return std::move(*result);
}
Json first_choice(const std::string& members) {
  Json result = run(members);
  EXPECT_TRUE(result.find("choices")) << to_json(result);
  return result.find("choices") ? result.find("choices")->as_array()[0] : Json();
}
std::vector<int64_t> ids_of(const Json& choice) {
  std::vector<int64_t> ids;
  for (const Json& id : choice.find("token_ids")->as_array()) ids.push_back(id.as_int());
  return ids;
}
std::string text_of(const Json& choice) { return choice.find("text")->as_string(); }
std::string finish_of(const Json& choice) { return choice.find("finish_reason")->as_string(); }

const std::string kGreedy = R"("temperature":0,"max_tokens":12,"ignore_eos":true)";

TEST(OfflineInference, StopStringsHoldOverTokenBorders) {
  const Json free = first_choice(kGreedy);
  const std::string text = text_of(free);
  const Tokenizer& tokenizer = *golden_model().tokenizer;
  std::vector<TokenId> head;
  for (const int64_t id : ids_of(free)) head.push_back(static_cast<TokenId>(id));
  // The last character of one token and the first of the next, where both are plain text.
  for (size_t n = 2; n + 1 < head.size(); ++n) {
    const std::string before = tokenizer.decode(std::span(head).first(n));
    if (before.size() >= text.size() || before.empty() || text.compare(0, before.size(), before) != 0) continue;
    const std::string stop = text.substr(before.size() - 1, 2);
    // Letters: what a control token spells is no part of the text that stop strings are looked for in.
    const bool is_plain = std::ranges::all_of(stop, [](unsigned char c) { return std::isalpha(c) != 0; });
    if (!is_plain || text.find(stop) != before.size() - 1) continue;
    const Json stopped = first_choice(kGreedy + ",\"stop\":\"" + stop + "\"");
    EXPECT_EQ(text_of(stopped), text.substr(0, before.size() - 1));
    EXPECT_EQ(finish_of(stopped), "stop");
    EXPECT_LE(ids_of(stopped).size(), n + 1);
    return;
  }
  // The greedy text of random weights may hold no such place; then a whole-text stop is what can be asked.
  const Json stopped = first_choice(kGreedy + ",\"stop\":\"never said, surely\"");
  EXPECT_EQ(text_of(stopped), text);
}

TEST(OfflineInference, StopIdsEndAndMinTokensHoldsThemOff) {
  const std::vector<int64_t> free = ids_of(first_choice(kGreedy));
  const std::string stop = ",\"stop_token_ids\":[" + std::to_string(free[3]) + "]";
  const size_t first = static_cast<size_t>(std::ranges::find(free, free[3]) - free.begin());
  const Json stopped = first_choice(kGreedy + stop);
  EXPECT_EQ(ids_of(stopped), std::vector<int64_t>(free.begin(), free.begin() + static_cast<int64_t>(first) + 1));
  EXPECT_EQ(finish_of(stopped), "stop");
  const std::vector<int64_t> held = ids_of(first_choice(kGreedy + stop + ",\"min_tokens\":12"));
  EXPECT_EQ(held.size(), 12u);
  EXPECT_EQ(std::ranges::count(held, free[3]), 0);
}

TEST(OfflineInference, BiasesBadWordsAndPenaltiesChangeWhatIsPicked) {
  const Json free = first_choice(kGreedy);
  const int64_t favourite = ids_of(free)[0];
  EXPECT_NE(ids_of(first_choice(kGreedy + ",\"logit_bias\":{\"" + std::to_string(favourite) + "\":-100}"))[0],
            favourite);
  const auto forced = ids_of(first_choice(kGreedy + ",\"logit_bias\":{\"77\":100}"));
  EXPECT_EQ(std::ranges::count(forced, 77), 12);
  // With a large presence penalty nothing is said twice.
  const auto fresh = ids_of(first_choice(kGreedy + ",\"presence_penalty\":2,\"frequency_penalty\":2,"
                                                   "\"repetition_penalty\":2,\"logit_bias\":{\"77\":3}"));
  EXPECT_LT(std::ranges::count(fresh, 77), 12);
  const std::string word = golden_model().tokenizer->decode(std::vector<TokenId>{100});
  const std::string wants = ",\"logit_bias\":{\"100\":100}";
  EXPECT_EQ(ids_of(first_choice(kGreedy + wants))[0], 100);
  const auto banned = ids_of(first_choice(kGreedy + wants + ",\"bad_words\":[" + to_json(Json(word)) + "]"));
  EXPECT_EQ(std::ranges::count(banned, 100), 0);
}

// Raw log probabilities are the model's own whatever the temperature; processed ones are those of the law that is
// drawn from, and so are the alternatives.
TEST(OfflineInference, LogprobsStandBeforeOrBehindTemperature) {
  const auto logprobs = [](const std::string& members) {
    const Json choice =
        first_choice(R"("seed":5,"max_tokens":1,"ignore_eos":true,"logprobs":true,"top_logprobs":2,)" + members);
    const Json& one = choice.find("logprobs")->as_array()[0];
    const Json::Array& top = one.find("top")->as_array();
    return std::pair(top[0].find("logprob")->as_double(), top[1].find("logprob")->as_double());
  };
  const auto raw = logprobs(R"("temperature":1)"), raw_cold = logprobs(R"("temperature":0.5)");
  EXPECT_EQ(raw, raw_cold);
  const auto cold = logprobs(R"("temperature":0.5,"logprobs_mode":"processed_logprobs")");
  // Differences of log probabilities are divided by the temperature: log p1 - log p2 = (l1 - l2) / T.
  EXPECT_NEAR(cold.first - cold.second, (raw.first - raw.second) / 0.5, 1e-4);
  EXPECT_GT(cold.first, raw.first);
}

TEST(OfflineInference, CutsLeaveTheLikeliest) {
  const std::vector<int64_t> greedy = ids_of(first_choice(kGreedy));
  for (const char* cut : {R"("top_k":1)", R"("top_p":0.000001)", R"("min_p":1)"})
    EXPECT_EQ(ids_of(first_choice(std::string(cut) + R"(,"temperature":1.5,"max_tokens":12,"ignore_eos":true)")),
              greedy)
        << cut;
}

TEST(OfflineInference, SeedsChooseAndChoicesDiffer) {
  const std::string sampled = R"("temperature":1,"max_tokens":12,"ignore_eos":true,"seed":)";
  EXPECT_EQ(ids_of(first_choice(sampled + "4")), ids_of(first_choice(sampled + "4")));
  EXPECT_NE(ids_of(first_choice(sampled + "4")), ids_of(first_choice(sampled + "5")));
  const Json result = run(sampled + "4,\"n\":3");
  std::set<std::vector<int64_t>> choices;
  for (const Json& choice : result.find("choices")->as_array()) choices.insert(ids_of(choice));
  EXPECT_EQ(choices.size(), 3u);
  EXPECT_EQ(ids_of(result.find("choices")->as_array()[0]), ids_of(first_choice(sampled + "4")));
}

TEST(OfflineInference, ExplainSaysWhatHappened) {
  const Json choice = first_choice(kGreedy);
  const Json& explain = *choice.find("explain");
  for (const char* name :
       {"queue_ms",      "first_token_ms",  "total_ms",     "cached_tokens", "shared_tokens", "replayed_tokens",
        "tail_tokens",   "cache_miss",      "replay",       "prompt_chunks", "steps",         "decode_steps",
        "drafted",       "verified",        "accepted",     "preemptions",   "kv_blocks",     "kv_bytes",
        "loaded_blocks", "offloaded_bytes", "loaded_bytes", "sampling"})
    EXPECT_TRUE(explain.find(name)) << name;
  EXPECT_EQ(explain.find("prompt_chunks")->as_int(), 1);
  EXPECT_EQ(explain.find("kv_blocks")->as_int(), 1);
  EXPECT_EQ(explain.find("steps")->as_int(), 1 + explain.find("decode_steps")->as_int());
  EXPECT_EQ(explain.find("accepted")->as_int() + explain.find("decode_steps")->as_int(), 11);
}

}  // namespace
}  // namespace deepinfer
