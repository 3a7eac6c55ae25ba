// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"

namespace deepinfer {
namespace {

Json nested() { return parse_json(read_file(DEEPINFER_TESTDATA "/model_a/config.json").value()).value(); }
Json flat() { return parse_json(read_file(DEEPINFER_TESTDATA "/model_a/inference/config.json").value()).value(); }

ModelConfig parsed(const Json& root) {
  const auto config = parse_model_config(to_json(root));
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.value();
}
std::string refusal(const Json& root) {
  const auto config = parse_model_config(to_json(root));
  return config.ok() ? "accepted" : config.status().message();
}
std::string refusal_of(const char* key, Json value, const char* section = "text_config") {
  Json root = nested();
  root.find(section)->set(key, std::move(value));
  return refusal(root);
}
Json list(std::initializer_list<int> numbers) { return Json::Array(numbers.begin(), numbers.end()); }
#define EXPECT_SAYS(message, words) EXPECT_NE((message).find(words), std::string::npos) << (message)

TEST(ModelConfig, RefusesWhatIsNoConfiguration) {
  for (const char* text : {"", "[]", "{}", "{\"text_config\":3}", "{\"text_config\":{}}", "null"})
    EXPECT_FALSE(parse_model_config(text).ok()) << text;
  EXPECT_SAYS(refusal(Json(Json::Object{{"text_config", Json::Object{}}})), "text_config.vocab_size is missing");
  EXPECT_SAYS(refusal(Json(Json::Object{{"vocab_size", 512}})), "dim is missing");
}

TEST(ModelConfig, RefusesValuesOutOfRangeOrKind) {
  EXPECT_SAYS(refusal_of("hidden_size", 0), "text_config.hidden_size is 0, expected a number from 1 to");
  EXPECT_SAYS(refusal_of("hidden_size", -256), "text_config.hidden_size is -256");
  EXPECT_SAYS(refusal_of("hidden_size", int64_t{1} << 40), "text_config.hidden_size is 1099511627776");
  EXPECT_SAYS(refusal_of("hidden_size", "256"), "text_config.hidden_size is \"256\"");
  EXPECT_SAYS(refusal_of("hidden_size", 256.5), "text_config.hidden_size is 256.5");
  EXPECT_SAYS(refusal_of("num_hidden_layers", 100000), "text_config.num_hidden_layers is 100000");
  EXPECT_SAYS(refusal_of("rope_theta", 0.5), "text_config.rope_theta is 0.5");
  EXPECT_SAYS(refusal_of("compress_ratios", "none"), "text_config.compress_ratios is \"none\", expected a list");
  EXPECT_SAYS(refusal_of("compress_ratios", Json::Array{Json("x")}), "compress_ratios: an element is \"x\"");
  EXPECT_SAYS(refusal_of("patch_size", 0, "vision_config"), "vision_config.patch_size is 0");
}

TEST(ModelConfig, RefusesFormatsItDoesNotKnow) {
  EXPECT_SAYS(refusal_of("scoring_func", "gumbel"), "scoring_func is \"gumbel\"");
  EXPECT_SAYS(refusal_of("hidden_act", "gelu"), "hidden_act is \"gelu\"");
  EXPECT_SAYS(refusal_of("num_key_value_heads", 8), "num_key_value_heads is 8");
  EXPECT_SAYS(refusal_of("attention_bias", true), "attention_bias is true");
  EXPECT_SAYS(refusal_of("tie_word_embeddings", true), "tie_word_embeddings is true");
  EXPECT_SAYS(refusal_of("norm_topk_prob", "yes"), "norm_topk_prob is \"yes\"");
  EXPECT_SAYS(refusal_of("expert_dtype", "fp8", "quantization_config"), "expert_dtype is \"fp8\"");
  EXPECT_SAYS(refusal_of("weight_block_size", list({128, 128}), "quantization_config"),
              "weight_block_size is [128,128]");
  EXPECT_SAYS(refusal_of("rope_type", "linear", "text_config"), "accepted");  // no such field there
  Json root = nested();
  root.find("text_config")->find("rope_scaling")->set("rope_type", "linear");
  EXPECT_SAYS(refusal(root), "text_config.rope_scaling.rope_type is \"linear\"");
  root = nested();
  root.set("architectures", Json::Array{"DeepseekV3ForCausalLM"});
  EXPECT_SAYS(refusal(root), "DeepseekV3ForCausalLM");
}

TEST(ModelConfig, RefusesRatiosThatDoNotFitTheLayers) {  // model.md 1.4
  EXPECT_SAYS(refusal_of("compress_ratios", list({0, 0, 2, 2, 2, 1, 1, 1, 1, 0})),
              "has 10 entries, expected 9 or, with the draft layers, 11");
  EXPECT_SAYS(refusal_of("compress_ratios", list({0, 0, 2, 2, 2, 1, 1, 1, 1, 0, 1})), "draft layer 10 has ratio 1");
  EXPECT_SAYS(refusal_of("compress_ratios", list({0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0})),
              "layer 1 has compress ratio 2, but no kv source");
  EXPECT_SAYS(refusal_of("compress_ratios", list({0, 0, 2, 1, 2, 1, 1, 1, 1, 0, 0})),
              "layer 3 has compress ratio 1, its kv source 2 has 2");
  EXPECT_SAYS(refusal_of("index_source_layer_ids", list({2, 5, 7})), "accepted");  // layer 4 reuses layer 2's selection
  EXPECT_SAYS(refusal_of("index_source_layer_ids", list({2, 4})),
              "layer 5 has compress ratio 1, its index source 4 has 2");
  EXPECT_SAYS(refusal_of("index_source_layer_ids", list({1, 2, 4, 5, 7})),
              "index_source_layer_ids names layer 1, whose compress ratio is 0");
  EXPECT_SAYS(refusal_of("kv_source_layer_ids", list({2, 4, 4, 5})), "not in ascending order");
  EXPECT_SAYS(refusal_of("kv_source_layer_ids", list({2, 4, 5, 9})), "names layer 9 of 9");
}

TEST(ModelConfig, AcceptsTheBareBackboneRatios) {
  Json root = nested();
  root.find("text_config")->set("compress_ratios", list({0, 0, 2, 2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(parsed(root), parsed(nested()));
}

TEST(ModelConfig, RefusesTooFewCandidates) {
  EXPECT_SAYS(refusal_of("index_topk", 18), "5 of 4 leave at least 17 candidates, index_topk needs 18");
  EXPECT_SAYS(refusal_of("index_topk", 17), "accepted");
  EXPECT_SAYS(refusal_of("candidate_source_layer_id", 6), "candidate_source_layer_id 6 is no index source");
  EXPECT_SAYS(refusal_of("candidate_source_layer_id", 2), "index source 5 comes after the candidate source 2");
  EXPECT_SAYS(refusal_of("candidate_topk_blocks", 0), "must be positive");
  EXPECT_SAYS(refusal_of("candidate_source_layer_id", -1), "accepted");
}

TEST(ModelConfig, RefusesWidthsThatDoNotComeInBlocks) {
  EXPECT_SAYS(refusal_of("hidden_size", 240), "hidden_size is 240, expected a multiple of 32");
  EXPECT_SAYS(refusal_of("q_lora_rank", 48), "q_lora_rank is 48");
  EXPECT_SAYS(refusal_of("moe_intermediate_size", 100), "moe_intermediate_size is 100");
  EXPECT_SAYS(refusal_of("head_dim", 48), "head_dim is 48");
  EXPECT_SAYS(refusal_of("index_head_dim", 16), "index_head_dim is 16");
  EXPECT_SAYS(refusal_of("qk_rope_head_dim", 64),
              "qk_rope_head_dim is 64, more than head_dim (64) or index_head_dim (32)");
  EXPECT_SAYS(refusal_of("qk_rope_head_dim", 15), "qk_rope_head_dim is 15");
  EXPECT_SAYS(refusal_of("o_groups", 3), "o_groups is 3, no divisor of the 8 heads");
  EXPECT_SAYS(refusal_of("engram_head_dim", 16), "engram_head_dim is 16");
}

TEST(ModelConfig, RefusesIdsOutsideTheVocabularyAndLayersOutsideTheModel) {
  EXPECT_SAYS(refusal_of("dspark_noise_token_id", 512), "dspark_noise_token_id is 512, the vocabulary has 512 ids");
  EXPECT_SAYS(refusal_of("dspark_target_layer_ids", list({6, 9})), "dspark_target_layer_ids names layer 9 of 9");
  EXPECT_SAYS(refusal_of("dspark_target_layer_ids", list({})), "dspark_target_layer_ids is empty");
  EXPECT_SAYS(refusal_of("engram_layer_ids", list({1, 1})), "engram_layer_ids names layer 1 twice");
  EXPECT_SAYS(refusal_of("engram_layer_ids", list({1, 9})), "engram_layer_ids names layer 9 of 9");
  EXPECT_SAYS(refusal_of("num_experts_per_tok", 9), "num_experts_per_tok is 9 of 8 experts");
  Json root = nested();
  root.set("image_token_id", 600);
  EXPECT_SAYS(refusal(root), "image_token_id is 600");
}

TEST(ModelConfig, RefusesTablesWhoseRowsAreNotTheSumOfTheirPrimes) {
  EXPECT_SAYS(refusal_of("engram_num_embeddings", list({462, 631})), "631 rows for layer 4, its primes sum to 630");
  EXPECT_SAYS(refusal_of("engram_num_embeddings", list({462})),
              "engram_num_embeddings has 1 entries, engram_layer_ids 2");
}

TEST(ModelConfig, ReadsBothForms) {
  const ModelConfig config = parsed(nested());
  EXPECT_EQ(config.hidden, 256);
  EXPECT_EQ(config.context_max, 4096);
  EXPECT_EQ(config.norm_epsilon, 1e-20f);
  EXPECT_EQ(config.engram.num_token_classes, 286);
  EXPECT_EQ(config.draft.num_experts, 4);
  EXPECT_EQ(config.vision->image_tokens_max, 64);
  EXPECT_FALSE(config.vision->aspect_max);
  ModelConfig other = parsed(flat());
  EXPECT_EQ(other.context_max, 1024);  // 64 * 16: the flat file names no context
  other.context_max = config.context_max;
  EXPECT_EQ(other, config);
}

TEST(ModelConfig, ReadsAModelWithoutVisionDraftsEngramOrYarn) {
  Json root = nested();
  root.set("vision_config", nullptr);
  root.find("text_config")->set("num_nextn_predict_layers", 0);
  root.find("text_config")->set("engram_layer_ids", list({}));
  root.find("text_config")->set("rope_scaling", nullptr);
  root.find("text_config")->set("compress_ratios", list({0, 0, 2, 2, 2, 1, 1, 1, 1}));
  const ModelConfig config = parsed(root);
  EXPECT_FALSE(config.vision);
  EXPECT_EQ(config.image_token_id, -1);
  EXPECT_TRUE(config.engram.empty());
  EXPECT_EQ(config.num_all_layers(), 9);
  EXPECT_EQ(config.rope_scaling.factor, 1);
}

TEST(ModelConfig, AcceptsEitherNameOfTheEngramPadAndBackboneExpertsForDrafts) {
  Json root = nested();
  Json& text = *root.find("text_config");
  std::erase_if(text.as_object(), [](const Json::Member& m) { return m.first == "engram_pad_token_id"; });
  text.set("engram_pad_id", 2);
  text.set("dspark_n_routed_experts", 0);
  text.set("dspark_num_experts_per_tok", 0);
  const ModelConfig config = parsed(root);
  EXPECT_EQ(config.engram.pad_token_id, 2);
  EXPECT_EQ(config.draft.num_experts, 8);
  EXPECT_EQ(config.draft.experts_per_token, 2);
}

TEST(ModelConfig, KnowsWhoseCacheALayerReads) {  // roles of model.md 7
  const ModelConfig config = parsed(nested());
  const int kv[] = {-1, -1, 2, 2, 4, 5, 5, 5, 5, -1, -1}, index[] = {-1, -1, 2, 2, 4, 5, 5, 7, 7, -1, -1};
  for (int l = 0; l < 11; ++l) {
    EXPECT_EQ(config.kv_source_of(l), kv[l]) << l;
    EXPECT_EQ(config.index_source_of(l), index[l]) << l;
  }
  EXPECT_EQ(config.engram_index(4), 1);
  EXPECT_EQ(config.engram_index(5), -1);
}

TEST(ModelConfig, ReadsTheReleasedWidthsOfConfigurationC) {
  const Json spec = parse_json(read_file(DEEPINFER_TESTDATA "/model_c/spec.json").value()).value();
  const ModelConfig config = parsed(*spec.find("hf_config"));
  EXPECT_EQ(config.hidden, 5120);
  EXPECT_EQ(config.context_max, 1048576);
  EXPECT_EQ(config.rope_scaling.original_context, 65536);
}

}  // namespace
}  // namespace deepinfer
