// SPDX-License-Identifier: MIT
// Benches only: a checkpoint of the released model's widths in memory, one rank's share of it: every layer in its
// released role, a few routed experts a layer of which each row chooses as many as in the whole model, so that a rank's
// rows bring their experts the work that expert parallelism would. Weights are drawn, with the deviations that keep
// activations near one; small Engram tables; no image encoder.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bench.h"
#include "base/file.h"
#include "base/json.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "engram/hash_plan.h"
#include "model/weight_table.h"

namespace deepinfer {

class WideCheckpoint {
 public:
  struct Shape {
    int num_layers = 40;  // the released layers' roles, from the first on; 40 = all
    int num_experts = 7, num_draft_experts = 3;
  };
  // Errors: those of reading testdata/released/config.json and of the configuration.
  static Result<std::shared_ptr<const ModelWeights>> make(const Shape& shape, int num_threads) {
    ASSIGN_OR_RETURN(const std::string config_text, wide_config(shape));
    ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(config_text));
    auto wide = std::make_shared<WideCheckpoint>();
    wide->fill(config, num_threads);
    static constexpr const char* kFile = "model.safetensors";
    auto files = files_in_memory("wide", {{"config.json", wide->keep(config_text)},
                                          {kFile, {wide->file_.data(), static_cast<size_t>(wide->file_.size())}}});
    ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open("wide", std::move(files)));
    ASSIGN_OR_RETURN(ModelWeights bound, ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint))));
    struct Owner {
      std::shared_ptr<WideCheckpoint> bytes;
      ModelWeights weights;
    };
    auto owner = std::make_shared<Owner>(Owner{std::move(wide), std::move(bound)});
    return std::shared_ptr<const ModelWeights>(owner, &owner->weights);
  }

 private:
  static constexpr int64_t kPattern = int64_t{1} << 20;

  static Result<std::string> wide_config(const Shape& shape) {
    ASSIGN_OR_RETURN(const std::string text, read_file(std::string(DEEPINFER_TESTDATA) + "/released/config.json"));
    ASSIGN_OR_RETURN(Json config, parse_json(text));
    Json& model = *config.find("text_config");
    const int layers = shape.num_layers,
              num_drafts = static_cast<int>(model.find("num_nextn_predict_layers")->as_int());
    const auto below = [&](const char* name) {  // of a list of layers those that there are
      Json::Array kept;
      for (const Json& layer : model.find(name)->as_array())
        if (layer.as_int() < layers) kept.push_back(layer);
      model.set(name, std::move(kept));
    };
    for (const char* name : {"kv_source_layer_ids", "index_source_layer_ids", "engram_layer_ids"}) below(name);
    Json::Array ratios = model.find("compress_ratios")->as_array(), targets;
    ratios.erase(ratios.begin() + layers, ratios.end() - num_drafts);
    for (int l = layers - 3; l < layers; ++l) targets.push_back(Json(l));
    if (model.find("candidate_source_layer_id")->as_int() >= layers) model.set("candidate_source_layer_id", Json(-1));
    model.set("compress_ratios", std::move(ratios));
    model.set("dspark_target_layer_ids", std::move(targets));
    model.set("num_hidden_layers", Json(layers));
    model.set("n_routed_experts", Json(shape.num_experts));
    model.set("dspark_n_routed_experts", Json(shape.num_draft_experts));
    model.set("engram_vocab_size", Json(1000));
    config.set("vision_config", Json(nullptr));
    EngramConfig engram{.ngram_max = static_cast<int>(model.find("engram_max_ngram_size")->as_int()),
                        .num_heads = static_cast<int>(model.find("engram_n_heads")->as_int()),
                        .head_dim = static_cast<int>(model.find("engram_head_dim")->as_int()),
                        .prime_start = 1000,
                        .num_token_classes = model.find("engram_compressed_vocab_size")->as_int()};
    for (const Json& layer : model.find("engram_layer_ids")->as_array()) {
      engram.layers.push_back(static_cast<int>(layer.as_int()));
      engram.num_rows.push_back(0);
    }
    ASSIGN_OR_RETURN(const auto plan, make_hash_plan(engram));
    Json::Array rows;
    for (const HashLayer& layer : plan.layers) rows.push_back(Json(layer.num_rows()));
    model.set("engram_num_embeddings", std::move(rows));
    return to_json(config);
  }

  std::span<const uint8_t> keep(const std::string& text) {
    config_.assign(text.begin(), text.end());
    return config_;
  }

  // Header and tensors, each at a multiple of 64 bytes.
  void fill(const ModelConfig& config, int num_threads) {
    WeightViews views;
    const std::vector<WeightRow> table = declare_weights(config, views);
    std::string text = "{";
    int64_t size = 0;
    std::vector<int64_t> begins;
    for (const WeightRow& row : table) {
      begins.push_back(size);
      text += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", size > 0 ? "," : "",
                          row.name, to_string(row.dtype), fmt::join(row.shape, ","), size, size + row.size_bytes());
      size += row.size_bytes();
    }
    text += "}";
    text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
    file_ = Buffer<uint8_t>(static_cast<int64_t>(text.size()) + 8 + size);
    const uint64_t length = text.size();
    std::memcpy(file_.data(), &length, 8);
    std::copy(text.begin(), text.end(), file_.data() + 8);
    uint8_t* data = file_.data() + 8 + text.size();
    for (const WeightRow& row : table) pattern_of(row);  // made before the threads read them
    ThreadPool pool(num_threads);
    pool.parallel_for(static_cast<int64_t>(table.size()), [&](int64_t i) {
      const WeightRow& row = table[static_cast<size_t>(i)];
      const std::vector<uint8_t>& pattern = patterns_.at(key_of(row));
      uint8_t* to = data + begins[static_cast<size_t>(i)];
      const int64_t bytes = row.size_bytes(), skip = row.is_scale ? 0 : 64 * (i % 97) * 8;
      for (int64_t at = 0; at < bytes;) {
        const int64_t from = (at + skip) % kPattern, piece = std::min(bytes - at, kPattern - from);
        std::memcpy(to + at, pattern.data() + from, static_cast<size_t>(piece));
        at += piece;
      }
    });
  }

  struct Key {
    DType dtype;
    int mean, deviation;  // in 1/1024 and as a power of two
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const WeightRow& row) {
    const bool is_norm = row.name.find("norm") != std::string::npos;
    const double fan_in = static_cast<double>(row.shape.back()) * (row.dtype == DType::kF8E8M0 ? 32 : 1);
    double deviation = row.name == "embed.weight" ? 1
                       : is_norm                  ? 0.05
                       : row.shape.size() < 2     ? 0.3
                                                  : 1 / std::sqrt(fan_in);
    if (row.dtype == DType::kF8E8M0) deviation /= row.name.find(".experts.") != std::string::npos ? 2.93 : 1.16;
    if (row.name.find("engram.embed") != std::string::npos) deviation = 0.9;
    return {row.dtype, is_norm ? 512 : 0, static_cast<int>(std::lround(std::log2(deviation)))};
  }
  void pattern_of(const WeightRow& row) {
    const Key key = key_of(row);
    std::vector<uint8_t>& pattern = patterns_[key];
    if (!pattern.empty()) return;
    Rng rng(patterns_.size());
    const auto append = [&](auto value) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
      pattern.insert(pattern.end(), bytes, bytes + sizeof value);
    };
    while (static_cast<int64_t>(pattern.size()) < kPattern) {
      const float normal = (rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 2;  // variance 1
      const float value = static_cast<float>(key.mean) / 1024 + std::ldexp(normal, key.deviation);
      const uint32_t bits = rng.next_u32();
      switch (key.dtype) {
        case DType::kBF16: append(to_bf16(value)); break;
        case DType::kF32: append(value); break;
        case DType::kF8E4M3: append(static_cast<uint8_t>((bits & 0x80) | 0x30 | (bits & 0x0F))); break;  // 0.5 to 1.9
        case DType::kF8E8M0: append(static_cast<uint8_t>(127 + key.deviation)); break;
        default: append(static_cast<uint8_t>(bits));
      }
    }
  }

  Buffer<uint8_t> file_;
  std::vector<uint8_t> config_;
  std::map<Key, std::vector<uint8_t>> patterns_;
};

}  // namespace deepinfer
