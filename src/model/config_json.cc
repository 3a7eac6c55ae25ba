// SPDX-License-Identifier: MIT
// config.json and inference/config.json to ModelConfig. Each field is one row of a table: its name in both files, where
// it goes, its limits, and its value when the file does not say.
#include <optional>
#include <span>
#include <variant>

#include "base/json.h"
#include "model/config.h"

namespace deepinfer {
namespace {

enum class Form { kNested, kFlat };

template <typename S>
struct IntField {
  const char* nested;
  const char* flat;  // nullptr: the flat file has no such field
  std::variant<int S::*, int64_t S::*> member;
  int64_t lo, hi;
  std::optional<int64_t> fallback = std::nullopt;
};

template <typename S>
struct RealField {
  const char* nested;
  const char* flat;
  std::variant<double S::*, float S::*> member;
  double lo, hi;
  std::optional<double> fallback = std::nullopt;
};

template <typename S>
struct ListField {
  const char* nested;
  const char* flat;
  std::variant<std::vector<int> S::*, std::vector<int64_t> S::*> member;
  int64_t lo, hi;
  size_t size_max;
};

constexpr int64_t kIdMax = (int64_t{1} << 24) - 1, kWidthMax = 1 << 20, kLayersMax = 1024;

constexpr IntField<ModelConfig> kTextIntegers[] = {
    {"vocab_size", "vocab_size", &ModelConfig::vocab_size, 1, kIdMax + 1},
    {"hidden_size", "dim", &ModelConfig::hidden, 1, kWidthMax},
    {"num_hidden_layers", "n_layers", &ModelConfig::num_layers, 1, kLayersMax},
    {"num_attention_heads", "n_heads", &ModelConfig::num_heads, 1, 4096},
    {"head_dim", "head_dim", &ModelConfig::head_dim, 1, 8192},
    {"qk_rope_head_dim", "rope_head_dim", &ModelConfig::rope_dim, 1, 8192},
    {"q_lora_rank", "q_lora_rank", &ModelConfig::q_rank, 1, kWidthMax},
    {"o_groups", "o_groups", &ModelConfig::output_groups, 1, 4096},
    {"o_lora_rank", "o_lora_rank", &ModelConfig::output_rank, 1, kWidthMax},
    {"sliding_window", "window_size", &ModelConfig::window, 1, 1 << 16},
    {"index_n_heads", "index_n_heads", &ModelConfig::index_heads, 1, 4096},
    {"index_head_dim", "index_head_dim", &ModelConfig::index_head_dim, 1, 8192},
    {"index_topk", "index_topk", &ModelConfig::index_top_k, 1, 1 << 20},
    {"candidate_source_layer_id", "candidate_source_layer", &ModelConfig::candidate_source_layer, -1, kLayersMax, -1},
    {"candidate_topk_blocks", "candidate_topk_blocks", &ModelConfig::candidate_blocks, 0, 1 << 20, 0},
    {"candidate_block_size", "candidate_block_size", &ModelConfig::candidate_block_size, 0, 1 << 16, 0},
    {"moe_intermediate_size", "moe_inter_dim", &ModelConfig::expert_inner, 1, kWidthMax},
    {"n_routed_experts", "n_routed_experts", &ModelConfig::num_experts, 1, 1 << 14},
    {"num_experts_per_tok", "n_activated_experts", &ModelConfig::experts_per_token, 1, 256},
    {"hc_mult", "hc_mult", &ModelConfig::num_streams, 1, 16, 4},
    {"hc_sinkhorn_iters", "hc_sinkhorn_iters", &ModelConfig::sinkhorn_iterations, 1, 1000, 20},
};

constexpr RealField<ModelConfig> kTextReals[] = {
    {"rope_theta", "rope_theta", &ModelConfig::rope_theta, 1.0, 1e12},
    {"compress_rope_theta", "compress_rope_theta", &ModelConfig::compress_rope_theta, 1.0, 1e12},
    {"rms_norm_eps", "norm_eps", &ModelConfig::norm_epsilon, 0, 1, 1e-20},
    {"hc_eps", "hc_eps", &ModelConfig::stream_epsilon, 0, 1, 1e-6},
    {"swiglu_limit", "swiglu_limit", &ModelConfig::swiglu_limit, 0, 1e30, 0},
    {"routed_scaling_factor", "route_scale", &ModelConfig::routed_scale, 1e-6, 1e6, 1},
    {"gate_temp", "gate_temp", &ModelConfig::gate_temperature, 1e-6, 1e6, 1},
};

constexpr ListField<ModelConfig> kTextLists[] = {
    {"compress_ratios", "compress_ratios", &ModelConfig::compress_ratios, 0, 128, 2 * kLayersMax},
    {"kv_source_layer_ids", "kv_source_layers", &ModelConfig::kv_source_layers, 0, kLayersMax - 1, kLayersMax},
    {"index_source_layer_ids", "index_source_layers", &ModelConfig::index_source_layers, 0, kLayersMax - 1, kLayersMax},
};

constexpr IntField<EngramConfig> kEngramIntegers[] = {
    {"engram_max_ngram_size", "engram_max_ngram_size", &EngramConfig::ngram_max, 2, 8},
    {"engram_n_heads", "engram_n_heads", &EngramConfig::num_heads, 1, 64},
    {"engram_head_dim", "engram_head_dim", &EngramConfig::head_dim, 1, 8192},
    {"engram_vocab_size", "engram_vocab_size", &EngramConfig::prime_start, 1, int64_t{1} << 31},
    {"engram_compressed_vocab_size", "engram_compressed_vocab_size", &EngramConfig::num_token_classes, 1, kIdMax + 1},
};
constexpr ListField<EngramConfig> kEngramLists[] = {
    {"engram_layer_ids", "engram_layer_ids", &EngramConfig::layers, 0, kLayersMax - 1, 16},
    {"engram_num_embeddings", "engram_num_embeddings", &EngramConfig::num_rows, 1, int64_t{1} << 40, 16},
};

constexpr IntField<DraftConfig> kDraftIntegers[] = {
    {"dspark_block_size", "dspark_block_size", &DraftConfig::block_size, 0, 64},
    {"dspark_noise_token_id", "dspark_noise_token_id", &DraftConfig::noise_token_id, 0, kIdMax},
    {"dspark_markov_rank", "dspark_markov_rank", &DraftConfig::markov_rank, 1, kWidthMax},
    {"dspark_n_routed_experts", "dspark_n_routed_experts", &DraftConfig::num_experts, 0, 1 << 14, 0},
    {"dspark_num_experts_per_tok", "dspark_n_activated_experts", &DraftConfig::experts_per_token, 0, 256, 0},
};
constexpr ListField<DraftConfig> kDraftLists[] = {
    {"dspark_target_layer_ids", "dspark_target_layer_ids", &DraftConfig::target_layers, 0, kLayersMax - 1, 64},
};

constexpr IntField<VisionConfig> kVisionIntegers[] = {
    {"num_hidden_layers", "vision_n_layers", &VisionConfig::num_layers, 1, kLayersMax},
    {"hidden_size", "vision_dim", &VisionConfig::hidden, 1, kWidthMax},
    {"num_attention_heads", "vision_n_heads", &VisionConfig::num_heads, 1, 4096},
    {"intermediate_size", "vision_inter_dim", &VisionConfig::inner, 1, kWidthMax},
    {"patch_size", "vision_patch_size", &VisionConfig::patch_size, 1, 256},
    {"downsample_ratio", "vision_downsample_ratio", &VisionConfig::downsample, 1, 64},
    {"max_image_tokens", "vision_max_n_token", &VisionConfig::image_tokens_max, 8, 1 << 20},
    {"min_pixels", "vision_min_pixels", &VisionConfig::pixels_min, 1, int64_t{1} << 32},
};
constexpr RealField<VisionConfig> kVisionReals[] = {
    {"rope_theta", "vision_rope_theta", &VisionConfig::rope_theta, 1.0, 1e12},
};

constexpr RealField<RopeScaling> kRopeReals[] = {
    {"factor", "rope_factor", &RopeScaling::factor, 1, 1e6},
    {"beta_fast", "beta_fast", &RopeScaling::beta_fast, 1e-6, 1e6, 32},
    {"beta_slow", "beta_slow", &RopeScaling::beta_slow, 1e-6, 1e6, 1},
};
constexpr IntField<RopeScaling> kRopeIntegers[] = {
    {"original_max_position_embeddings", "original_seq_len", &RopeScaling::original_context, 1, kIdMax + 1},
};

// ---- reading one field

// Where fields are looked up: an object of the file, and which of the two names counts.
struct Section {
  const Json& object;
  Form form;
  std::string path;  // "text_config." for messages

  const char* name(const char* nested, const char* flat) const { return form == Form::kNested ? nested : flat; }
  const Json* find(const char* nested, const char* flat) const {
    const char* key = name(nested, flat);
    const Json* value = key ? object.find(key) : nullptr;
    return value && value->is_null() ? nullptr : value;
  }
  std::string full_name(const char* nested, const char* flat) const { return path + name(nested, flat); }
};

std::string show(const Json& value) {
  std::string text = to_json(value);
  return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

Status out_of_range(const std::string& name, const std::string& value, const std::string& lo, const std::string& hi) {
  return invalid_argument(name + " is " + value + ", expected a number from " + lo + " to " + hi);
}

template <typename S>
Status read(const Section& section, const IntField<S>& field, S& out) {
  const Json* value = section.find(field.nested, field.flat);
  if (!value && !field.fallback) return invalid_argument(section.full_name(field.nested, field.flat) + " is missing");
  int64_t number = field.fallback.value_or(0);
  if (value) {
    const bool fits = value->kind() == Json::Kind::kInt && value->as_int() >= field.lo && value->as_int() <= field.hi;
    if (!fits)
      return out_of_range(section.full_name(field.nested, field.flat), show(*value), std::to_string(field.lo),
                          std::to_string(field.hi));
    number = value->as_int();
  }
  std::visit([&](auto member) { out.*member = static_cast<std::remove_reference_t<decltype(out.*member)>>(number); },
             field.member);
  return {};
}

template <typename S>
Status read(const Section& section, const RealField<S>& field, S& out) {
  const Json* value = section.find(field.nested, field.flat);
  if (!value && !field.fallback) return invalid_argument(section.full_name(field.nested, field.flat) + " is missing");
  double number = field.fallback.value_or(0);
  if (value) {
    const bool fits = value->is_number() && value->as_double() >= field.lo && value->as_double() <= field.hi;
    if (!fits)
      return out_of_range(section.full_name(field.nested, field.flat), show(*value), show(field.lo), show(field.hi));
    number = value->as_double();
  }
  std::visit([&](auto member) { out.*member = static_cast<std::remove_reference_t<decltype(out.*member)>>(number); },
             field.member);
  return {};
}

template <typename S>
Status read(const Section& section, const ListField<S>& field, S& out) {
  const Json* value = section.find(field.nested, field.flat);
  const std::string name = section.full_name(field.nested, field.flat);
  if (!value) return invalid_argument(name + " is missing");
  if (!value->is_array() || value->as_array().size() > field.size_max)
    return invalid_argument(name + " is " + show(*value) + ", expected a list of at most " +
                            std::to_string(field.size_max) + " numbers");
  for (const Json& item : value->as_array()) {
    if (item.kind() != Json::Kind::kInt || item.as_int() < field.lo || item.as_int() > field.hi)
      return out_of_range(name + ": an element", show(item), std::to_string(field.lo), std::to_string(field.hi));
    std::visit(
        [&](auto member) {
          (out.*member)
              .push_back(
                  static_cast<typename std::remove_reference_t<decltype(out.*member)>::value_type>(item.as_int()));
        },
        field.member);
  }
  return {};
}

template <typename Field, size_t N, typename S>
Status read_all(const Section& section, const Field (&fields)[N], S& out) {
  for (const Field& field : fields) TRY(read(section, field, out));
  return {};
}

// A field that must have one certain value, where it stands at all.
Status expect(const Section& section, const char* name, const Json& wanted) {
  const Json* value = section.object.find(name);
  if (!value || value->is_null() || *value == wanted) return {};
  return unimplemented(section.path + name + " is " + show(*value) + ", this engine knows " + show(wanted) + " only");
}

// ---- the parts

Status read_score(const Section& section, ModelConfig& config) {
  if (const Json* norm = section.object.find("norm_topk_prob"); norm && !norm->is_null()) {
    if (!norm->is_bool())
      return invalid_argument(section.full_name("norm_topk_prob", "norm_topk_prob") + " is " + show(*norm) +
                              ", expected true or false");
    config.normalize_scores = norm->as_bool();
  }
  const Json* name = section.find("scoring_func", "score_func");
  if (!name) return {};
  for (const ScoreFunction score : {ScoreFunction::kSqrtSoftplus, ScoreFunction::kSigmoid, ScoreFunction::kSoftmax}) {
    if (!name->is_string() || name->as_string() != to_string(score)) continue;
    config.score = score;
    return {};
  }
  return unimplemented(section.full_name("scoring_func", "score_func") + " is " + show(*name) +
                       ", known are sqrtsoftplus, sigmoid, softmax");
}

Status read_rope(const Section& text, ModelConfig& config) {
  if (text.form == Form::kFlat) {
    if (!text.object.find("original_seq_len")) return {};
    TRY(read_all(text, kRopeReals, config.rope_scaling));
    return read_all(text, kRopeIntegers, config.rope_scaling);
  }
  const Json* scaling = text.object.find("rope_scaling");
  if (!scaling || scaling->is_null()) return {};
  const Section section{*scaling, text.form, text.path + "rope_scaling."};
  const Json* type = scaling->find("rope_type") ? scaling->find("rope_type") : scaling->find("type");
  if (!type || !(*type == Json("yarn")))
    return unimplemented(section.path + "rope_type is " + (type ? show(*type) : "missing") +
                         ", this engine knows \"yarn\" only");
  TRY(read_all(section, kRopeReals, config.rope_scaling));
  return read_all(section, kRopeIntegers, config.rope_scaling);
}

Status read_engram(const Section& text, ModelConfig& config) {
  const Json* layers = text.object.find("engram_layer_ids");
  if (!layers || layers->is_null() || *layers == Json(Json::Array{})) return {};
  TRY(read_all(text, kEngramIntegers, config.engram));
  TRY(read_all(text, kEngramLists, config.engram));
  // The nested file says engram_pad_token_id, other writers engram_pad_id; both are read in both.
  const char* name = text.object.find("engram_pad_token_id") ? "engram_pad_token_id" : "engram_pad_id";
  return read(text, IntField<EngramConfig>{name, name, &EngramConfig::pad_token_id, 0, kIdMax}, config.engram);
}

Status read_draft(const Section& text, ModelConfig& config) {
  TRY(read(text, IntField<DraftConfig>{"num_nextn_predict_layers", "n_mtp_layers", &DraftConfig::num_layers, 0, 64, 0},
           config.draft));
  if (config.draft.num_layers == 0) return {};
  TRY(read_all(text, kDraftIntegers, config.draft));
  TRY(read_all(text, kDraftLists, config.draft));
  if (config.draft.num_experts == 0) config.draft.num_experts = config.num_experts;
  if (config.draft.experts_per_token == 0) config.draft.experts_per_token = config.experts_per_token;
  return {};
}

Status read_vision(const Section& section, ModelConfig& config) {
  VisionConfig vision;
  TRY(read_all(section, kVisionIntegers, vision));
  TRY(read_all(section, kVisionReals, vision));
  if (const Json* aspect = section.find("max_wh_ratio", "vision_max_wh_ratio")) {
    if (!aspect->is_number() || aspect->as_double() < 1e-3 || aspect->as_double() > 1e6)
      return out_of_range(section.full_name("max_wh_ratio", "vision_max_wh_ratio"), show(*aspect), "0.001", "1000000");
    vision.aspect_max = aspect->as_double();
  }
  config.vision = vision;
  return {};
}

Status read_text(const Section& text, ModelConfig& config) {
  TRY(read_all(text, kTextIntegers, config));
  TRY(read_all(text, kTextReals, config));
  TRY(read_all(text, kTextLists, config));
  TRY(read_score(text, config));
  TRY(read_rope(text, config));
  TRY(read_engram(text, config));
  TRY(read_draft(text, config));
  TRY(expect(text, "hidden_act", "silu"));
  TRY(expect(text, "num_key_value_heads", 1));
  TRY(expect(text, "n_shared_experts", 1));
  TRY(expect(text, "attention_bias", false));
  TRY(expect(text, "tie_word_embeddings", false));
  return expect(text, "topk_method", "noaux_tc");
}

Status read_token_ids(const Section& root, ModelConfig& config) {
  const auto id = [&](const char* name, TokenId ModelConfig::*member, int64_t fallback) {
    return read(root, IntField<ModelConfig>{name, name, member, 0, kIdMax, fallback}, config);
  };
  TRY(id("bos_token_id", &ModelConfig::bos_token_id, 0));
  TRY(id("eos_token_id", &ModelConfig::eos_token_id, 1));
  TRY(id("pad_token_id", &ModelConfig::pad_token_id, config.engram.empty() ? 2 : config.engram.pad_token_id));
  if (!config.vision) return {};
  return read(root, IntField<ModelConfig>{"image_token_id", "image_token_id", &ModelConfig::image_token_id, 0, kIdMax},
              config);
}

Status read_nested(const Json& root, ModelConfig& config) {
  const Json& text = *root.find("text_config");
  if (!text.is_object()) return invalid_argument("text_config is no object");
  const Section section{text, Form::kNested, "text_config."};
  TRY(read_text(section, config));
  TRY(read(section, IntField<ModelConfig>{"max_position_embeddings", nullptr, &ModelConfig::context_max, 1, kIdMax + 1},
           config));
  if (const Json* vision = root.find("vision_config"); vision && !vision->is_null()) {
    if (!vision->is_object()) return invalid_argument("vision_config is no object");
    TRY(read_vision({*vision, Form::kNested, "vision_config."}, config));
  }
  const Section top{root, Form::kNested, ""};
  TRY(read_token_ids(top, config));
  TRY(expect(top, "model_type", "deepseek_v41"));
  if (const Json* quantization = root.find("quantization_config"); quantization && quantization->is_object()) {
    const Section section_q{*quantization, Form::kNested, "quantization_config."};
    TRY(expect(section_q, "quant_method", "fp8"));
    TRY(expect(section_q, "weight_block_size", Json::Array{32, 32}));
    TRY(expect(section_q, "scale_fmt", "ue8m0"));
    TRY(expect(section_q, "expert_dtype", "fp4"));
  }
  return {};
}

Status read_flat(const Json& root, ModelConfig& config) {
  const Section section{root, Form::kFlat, ""};
  TRY(read_text(section, config));
  if (root.find("vision_n_layers") && !root.find("vision_n_layers")->is_null()) TRY(read_vision(section, config));
  TRY(read_token_ids(section, config));
  TRY(expect(section, "dtype", "fp8"));
  TRY(expect(section, "expert_dtype", "fp4"));
  // The flat file leaves the context to the run; the scaled original context is what the positions were trained for.
  const RopeScaling& rope = config.rope_scaling;
  const int64_t scaled = rope.original_context > 0
                             ? static_cast<int64_t>(static_cast<double>(rope.original_context) * rope.factor)
                             : 1 << 20;
  return read(section,
              IntField<ModelConfig>{nullptr, "max_seq_len", &ModelConfig::context_max, 1, kIdMax + 1,
                                    std::min(scaled, kIdMax + 1)},
              config);
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view json_text) {
  ASSIGN_OR_RETURN(const Json root, parse_json(json_text, {.bytes_max = size_t{4} << 20, .depth_max = 32}));
  if (!root.is_object()) return invalid_argument("the configuration is no JSON object");
  ModelConfig config;
  config.architecture = "DeepseekV41ForCausalLM";
  if (const Json* names = root.find("architectures"); names && !names->is_null()) {
    const bool known =
        names->is_array() && !names->as_array().empty() && names->as_array()[0] == Json(config.architecture);
    if (!known)
      return unimplemented("architectures is " + show(*names) + ", this engine knows [\"" + config.architecture +
                           "\"] only");
  }
  TRY(root.find("text_config") ? read_nested(root, config) : read_flat(root, config));
  // Bare backbone lists are accepted; draft layers have window attention only.
  if (config.compress_ratios.size() == static_cast<size_t>(config.num_layers))
    config.compress_ratios.resize(static_cast<size_t>(config.num_all_layers()), 0);
  TRY(check_model_config(config));
  return config;
}

}  // namespace deepinfer
