// SPDX-License-Identifier: MIT
// Test only: writes a checkpoint folder with random weights for any configuration, in the released layout. Every
// tensor's bytes depend on its name and the seed alone.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/philox.h"
#include "engram/hash_plan.h"
#include "model/weight_table.h"
#include "tensor/float8.h"
#include "tensor/safetensors.h"

namespace deepinfer {

class RandomTensor {
 public:
  RandomTensor(const WeightRow& row, uint64_t seed) : row_(row), rng_(seed, std::hash<std::string>{}(row.name)) {}

  std::vector<uint8_t> bytes() {
    std::vector<uint8_t> out;
    const int64_t num = row_.num_elements();
    const bool is_norm = row_.name.find("norm") != std::string::npos;
    const double std = row_.name == "embed.weight" ? 1.0
                       : is_norm                   ? 0.05
                       : row_.shape.size() < 2     ? 0.3
                                                   : 1.0 / std::sqrt(static_cast<double>(row_.shape.back()));
    const double mean = is_norm ? 0.5 : row_.name.ends_with("_scale") ? 0.7 : 0.0;
    for (int64_t i = 0; i < num; ++i) {
      switch (row_.dtype) {
        case DType::kBF16: append(out, to_bf16(static_cast<float>(mean + std * normal()))); break;
        case DType::kF32: append(out, static_cast<float>(mean + std * normal())); break;
        case DType::kF8E4M3: append(out, float_to_e4m3(static_cast<float>(8 * normal()))); break;
        case DType::kF8E8M0: append(out, scale()); break;
        default:
          append(out, static_cast<uint8_t>(float_to_e2m1(static_cast<float>(2.2 * normal())) |
                                           float_to_e2m1(static_cast<float>(2.2 * normal())) << 4));
      }
    }
    return out;
  }

 private:
  template <typename T>
  static void append(std::vector<uint8_t>& out, T value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
  double normal() { return std::sqrt(-2 * std::log(rng_.uniform())) * std::cos(6.283185307179586 * rng_.uniform()); }
  // Block scales give the matrix a standard deviation near fan_in^-0.5 (tables: 1), varied by -1, 0, +1.
  uint8_t scale() {
    const bool is_expert = row_.name.find(".experts.") != std::string::npos,
               is_table = row_.name.find("engram.embed") != std::string::npos;
    const double wanted = is_table ? 1.0 : 1.0 / std::sqrt(32.0 * static_cast<double>(row_.shape.back()));
    return static_cast<uint8_t>(127 + std::lround(std::log2(wanted / (is_expert ? 2.2 : 8.0))) +
                                static_cast<int>(rng_.below(3)) - 1);
  }

  const WeightRow& row_;
  Rng rng_;
};

// `text_config` overrides fields of golden model A's; a null value removes a top-level part ("vision_config").
inline Json config_like_model_a(const Json::Object& text_config, bool with_vision) {
  Json config = parse_json(read_file(std::string(DEEPINFER_TESTDATA) + "/model_a/config.json").value()).value();
  for (const auto& [name, value] : text_config) config.find("text_config")->set(name, value);
  if (!with_vision)
    std::erase_if(config.as_object(), [](const Json::Member& member) { return member.first == "vision_config"; });
  return config;
}

inline EngramConfig engram_config_of(const Json& text_config) {
  const auto number = [&](const char* name) { return text_config.find(name)->as_int(); };
  EngramConfig engram{.ngram_max = static_cast<int>(number("engram_max_ngram_size")),
                      .num_heads = static_cast<int>(number("engram_n_heads")),
                      .head_dim = static_cast<int>(number("engram_head_dim")),
                      .prime_start = number("engram_vocab_size"),
                      .num_token_classes = number("engram_compressed_vocab_size")};
  for (const Json& layer : text_config.find("engram_layer_ids")->as_array()) {
    engram.layers.push_back(static_cast<int>(layer.as_int()));
    engram.num_rows.push_back(0);
  }
  return engram;
}

// Fills in the Engram row counts that follow from the primes, writes config and weights.
inline void write_random_checkpoint(const std::string& folder, Json config, uint64_t seed) {
  std::filesystem::create_directories(folder);
  if (!config.find("text_config")->find("engram_layer_ids")->as_array().empty()) {
    const auto plan = make_hash_plan(engram_config_of(*config.find("text_config")));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Json::Array rows;
    for (const HashLayer& layer : plan.value().layers) rows.push_back(layer.num_rows());
    config.find("text_config")->set("engram_num_embeddings", rows);
  }
  ASSERT_TRUE(write_file_atomically(folder + "/config.json", to_json(config)).ok());
  const auto parsed = parse_model_config(to_json(config));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  WeightViews views;
  SafetensorsWriter writer;
  for (const WeightRow& row : declare_weights(parsed.value(), views))
    writer.add(row.name, row.dtype, row.shape, RandomTensor(row, seed).bytes());
  const Status status = writer.write(folder + "/model.safetensors");
  ASSERT_TRUE(status.ok()) << status.message();
}

}  // namespace deepinfer
