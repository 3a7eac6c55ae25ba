// SPDX-License-Identifier: MIT
// Other shapes than the golden model's: ratios, windows, heads, top-k, with and without candidates, Engram, draft head,
// vision. Each loads, runs, and gives the same bits whole, in chunks, stepwise and batched; shapes are read, never
// compiled in.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/golden_prompts.h"
#include "engine/random_checkpoint.h"
#include "engine/sequence_driver.h"

namespace deepinfer {
namespace {

struct Shape {
  const char* name;
  Json::Object text_config;
  bool with_vision;
};

Json::Array numbers(std::initializer_list<int> values) { return Json::Array(values.begin(), values.end()); }

Json::Object small_dimensions() {
  return {{"hidden_size", 128},
          {"q_lora_rank", 32},
          {"o_lora_rank", 32},
          {"moe_intermediate_size", 64},
          {"dspark_markov_rank", 32}};
}

Json::Object with(Json::Object base, const Json::Object& more) {
  for (const auto& [name, value] : more) base.emplace_back(name, value);
  return base;
}

// Ratio 4, one head group, tiny window, candidates that bite early, a draft block longer than the window's half.
Shape ratio4_shape() {
  return {"ratio4",
          with(small_dimensions(), {{"num_hidden_layers", 5},
                                    {"compress_ratios", numbers({0, 4, 4, 1, 1, 0})},
                                    {"kv_source_layer_ids", numbers({1, 3})},
                                    {"index_source_layer_ids", numbers({1, 3, 4})},
                                    {"candidate_source_layer_id", 3},
                                    {"candidate_topk_blocks", 3},
                                    {"candidate_block_size", 4},
                                    {"index_topk", 5},
                                    {"sliding_window", 8},
                                    {"num_attention_heads", 4},
                                    {"head_dim", 32},
                                    {"qk_rope_head_dim", 8},
                                    {"o_groups", 1},
                                    {"index_n_heads", 3},
                                    {"engram_layer_ids", numbers({4})},
                                    {"engram_num_embeddings", numbers({1})},
                                    {"num_nextn_predict_layers", 1},
                                    {"dspark_block_size", 5},
                                    {"dspark_target_layer_ids", numbers({1, 4})}}),
          true};
}

// Window attention alone: no global KV, no Engram, no draft head, no vision.
Shape window_only_shape() {
  return {"window_only",
          with(small_dimensions(), {{"num_hidden_layers", 3},
                                    {"compress_ratios", numbers({0, 0, 0})},
                                    {"kv_source_layer_ids", numbers({})},
                                    {"index_source_layer_ids", numbers({})},
                                    {"candidate_source_layer_id", -1},
                                    {"sliding_window", 24},
                                    {"engram_layer_ids", numbers({})},
                                    {"engram_num_embeddings", numbers({})},
                                    {"num_nextn_predict_layers", 0},
                                    {"dspark_target_layer_ids", numbers({})},
                                    {"num_attention_heads", 6},
                                    {"o_groups", 3},
                                    {"head_dim", 64}}),
          false};
}

// The last layer is the last kv source; released window; two streams; one expert a token; no candidates.
Shape source_last_shape() {
  return {"source_last",
          with(small_dimensions(), {{"num_hidden_layers", 4},
                                    {"compress_ratios", numbers({1, 1, 2, 2, 0, 0})},
                                    {"kv_source_layer_ids", numbers({0, 2, 3})},
                                    {"index_source_layer_ids", numbers({0, 1, 2, 3})},
                                    {"candidate_source_layer_id", -1},
                                    {"index_topk", 40},
                                    {"sliding_window", 128},
                                    {"hc_mult", 2},
                                    {"num_experts_per_tok", 1},
                                    {"engram_layer_ids", numbers({0, 2})},
                                    {"engram_num_embeddings", numbers({1, 1})},
                                    {"dspark_target_layer_ids", numbers({0, 3})},
                                    {"dspark_block_size", 2}}),
          true};
}

std::vector<Shape> shapes() { return {ratio4_shape(), window_only_shape(), source_last_shape()}; }

EngineOptions options_of(int num_threads) {
  EngineOptions options = golden_options();
  options.num_threads = num_threads;
  options.rows_max = 400;
  options.logits_rows_max = 400;
  return options;
}

std::vector<TokenId> random_tokens(uint64_t seed, int64_t num) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < num; ++i) tokens.push_back(static_cast<TokenId>(rng.below(500)));
  return tokens;
}

std::vector<ExactPrompt> prompts_of() {
  std::vector<ExactPrompt> prompts;
  for (const int64_t length : {1, 5, 40, 150, 333})
    prompts.push_back({.tokens = random_tokens(static_cast<uint64_t>(length), length),
                       .decode_tokens = random_tokens(77, 9),
                       .keeps_all_logits = true});
  return prompts;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_same_whatever_the_shape(Engine& engine, Engine& two_threads, const std::string& what) {
  const auto single = run_exact(engine, prompts_of(), {});
  ASSERT_TRUE(single.ok()) << what << ": " << single.status().message();
  for (const float logit : single.value()[4].logits) ASSERT_TRUE(std::isfinite(logit)) << what;
  const RunShape others[] = {{.chunk = 3}, {.chunk = 1}, {.chunk = 64}, {.batched = true, .seed = 5}};
  for (const RunShape& shape : others) {
    const auto run = run_exact(shape.chunk == 64 ? two_threads : engine, prompts_of(), shape);
    ASSERT_TRUE(run.ok()) << what << ": " << run.status().message();
    for (size_t i = 0; i < single.value().size(); ++i) {
      const ExactNumbers &a = single.value()[i], &b = run.value()[i];
      EXPECT_TRUE(equal_bits(a.all_logits, b.all_logits)) << what << ", chunk " << shape.chunk << ", prompt " << i;
      EXPECT_TRUE(equal_bits(a.decode_logits, b.decode_logits))
          << what << ", chunk " << shape.chunk << ", prompt " << i;
      EXPECT_TRUE(equal_bits(a.draft_confidences, b.draft_confidences))
          << what << ", chunk " << shape.chunk << ", prompt " << i;
      EXPECT_EQ(a.draft_ids, b.draft_ids) << what;
    }
  }
}

// The prompt again behind a hit of 256 tokens (256 of global KV from the first run's blocks), exact replay.
void expect_exact_replay(Engine& engine, const std::string& what) {
  const auto tokens = random_tokens(9, 390);
  const ReplayPlan plan = plan_replay(engine.replay_geometry(), ReplayMode::kExact, 256, 380);
  const BlockTable cold_blocks({BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}}),
      hit_blocks({BlockId{0}, BlockId{1}, BlockId{7}, BlockId{8}});
  const auto run = [&](SequenceDriver& driver, int64_t begin) {
    driver.run({tokens.begin() + begin, tokens.begin() + 380}, begin, 1);
    std::vector<float> trail = driver.logits;
    driver.history.clear();
    for (int64_t i = 380; i < 390; ++i) {
      const SequenceOutput output = driver.run({tokens[static_cast<size_t>(i)]}, i, 1);
      trail.insert(trail.end(), driver.logits.begin(), driver.logits.end());
      trail.insert(trail.end(), output.confidences.begin(), output.confidences.end());
    }
    return trail;
  };
  SequenceDriver cold(engine, 0, cold_blocks), hit(engine, 1, hit_blocks);
  const auto wanted = run(cold, 0);
  hit.limits = plan.limits;
  const int64_t look_back = std::min<int64_t>(3, plan.run_begin);
  hit.history.assign(tokens.begin() + plan.run_begin - look_back, tokens.begin() + plan.run_begin);
  EXPECT_TRUE(equal_bits(run(hit, plan.run_begin), wanted))
      << what << ", replay from " << plan.run_begin << " " << plan.reason;
}

// Fast replay is approximate, but one result whatever the chunks.
void expect_fast_replay_ignores_chunks(Engine& engine, const std::string& what) {
  const auto tokens = random_tokens(10, 300);
  const ReplayPlan plan = plan_replay(engine.replay_geometry(), ReplayMode::kFast, 0, 300);
  std::vector<float> wanted;
  for (const int64_t chunk : {300, 77, 1}) {
    SequenceDriver driver(engine, 2, BlockTable({BlockId{10}, BlockId{11}, BlockId{12}}));
    driver.limits = plan.limits;
    for (int64_t begin = 0; begin < 300; begin += chunk) {
      const int64_t end = std::min<int64_t>(300, begin + chunk);
      driver.run({tokens.begin() + begin, tokens.begin() + end}, begin, end == 300);
    }
    for (const float logit : driver.logits) ASSERT_TRUE(std::isfinite(logit)) << what;
    if (wanted.empty()) wanted = driver.logits;
    EXPECT_TRUE(equal_bits(driver.logits, wanted)) << what << ", chunks of " << chunk;
  }
}

TEST(RandomModel, OddShapesRunAndGiveOneResult) {
  for (const Shape& shape : shapes()) {
    const std::string folder = testing::TempDir() + "/random_" + shape.name;
    write_random_checkpoint(folder, config_like_model_a(shape.text_config, shape.with_vision), 3);
    if (HasFatalFailure()) return;
    const auto weights = open_weights(folder);
    ASSERT_TRUE(weights) << shape.name;
    auto engine = Engine::open(weights, golden_token_map(), options_of(1)),
         two_threads = Engine::open(weights, golden_token_map(), options_of(2));
    ASSERT_TRUE(engine.ok()) << shape.name << ": " << engine.status().message();
    expect_same_whatever_the_shape(*engine.value(), *two_threads.value(), shape.name);
    expect_exact_replay(*engine.value(), shape.name);
    expect_fast_replay_ignores_chunks(*engine.value(), shape.name);
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace deepinfer
