// SPDX-License-Identifier: MIT
// The input is the JSON header of a shard whose names, dtypes and shapes are whatever they are; their data_offsets are
// made right (else nothing behind the container's checks would be reached). Property: a checkpoint that is bound has
// every matrix in one layout that its shape can have, and no layout reads outside its tensor.
#include <map>
#include <set>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "base/json.h"
#include "model/convert.h"
#include "model/weight_table.h"

namespace deepinfer {
namespace {

constexpr int64_t kDataBytesMax = int64_t{1} << 20;
constexpr uint8_t kDataByte = 0x11;  // a value in every dtype, and the same in every order

// The narrowest there is: a layer with one expert.
constexpr std::string_view kConfig = R"({"model_type": "deepseek_v41", "text_config": {
  "vocab_size": 4, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 32,
  "qk_rope_head_dim": 16, "q_lora_rank": 32, "o_groups": 1, "o_lora_rank": 32, "sliding_window": 4,
  "moe_intermediate_size": 32, "n_routed_experts": 1, "num_experts_per_tok": 1, "hc_mult": 1, "rope_theta": 10000,
  "compress_rope_theta": 10000, "compress_ratios": [0], "kv_source_layer_ids": [], "index_source_layer_ids": [],
  "index_n_heads": 1, "index_head_dim": 32, "index_topk": 1, "max_position_embeddings": 64}})";

// Bytes that a tensor's dtype and shape ask for; those of no use, or too many here, take none and are refused later.
int64_t bytes_of(const Json& tensor) {
  const Json *dtype = tensor.find("dtype"), *shape = tensor.find("shape");
  const auto known = dtype && dtype->is_string() ? parse_dtype(dtype->as_string()) : std::nullopt;
  if (!known || !shape || !shape->is_array()) return 0;
  auto bytes = static_cast<int64_t>(size_bytes(*known));
  for (const Json& n : shape->as_array()) {
    if (n.kind() != Json::Kind::kInt || n.as_int() < 0 || __builtin_mul_overflow(bytes, n.as_int(), &bytes)) return 0;
    if (bytes > kDataBytesMax) return 0;
  }
  return bytes;
}

// The shard of a header: tensors in the header's order, every data byte the same.
std::vector<uint8_t> shard_of(Json header) {
  int64_t end = 0;
  for (auto& [name, tensor] : header.as_object()) {
    if (name == "__metadata__" || !tensor.is_object()) continue;
    const int64_t begin = end, bytes = bytes_of(tensor);
    if (begin + bytes <= kDataBytesMax) end += bytes;
    tensor.set("data_offsets", Json::Array{begin, end});
  }
  const std::string text = to_json(header);
  std::vector<uint8_t> shard;
  for (uint64_t length = text.size(), i = 0; i < 8; ++i, length >>= 8) shard.push_back(static_cast<uint8_t>(length));
  shard.insert(shard.end(), text.begin(), text.end());
  shard.insert(shard.end(), static_cast<size_t>(end), kDataByte);
  return shard;
}

Result<Checkpoint> open(std::span<const uint8_t> shard) {
  const std::span config(reinterpret_cast<const uint8_t*>(kConfig.data()), kConfig.size());
  return Checkpoint::open("fuzz", files_in_memory("fuzz", {{"config.json", config}, {"model.safetensors", shard}}));
}

// The same model as released.
const Checkpoint& released() {
  static const std::vector<uint8_t> shard = [] {
    WeightViews views;
    Json::Object members;
    for (const WeightRow& row : declare_weights(parse_model_config(kConfig).value(), views))
      members.emplace_back(row.name, Json::Object{{"dtype", to_string(row.dtype)},
                                                  {"shape", Json::Array(row.shape.begin(), row.shape.end())}});
    return shard_of(Json(std::move(members)));
  }();
  static const Checkpoint checkpoint = open(shard).value();
  return checkpoint;
}

// Every code and every scale, through the accessors; a byte outside the data is the sanitizer's.
template <typename Matrix>
void read_all(const Matrix& m) {
  CHECK(m.layout == WeightLayout::kRows || can_have_planes(m.out, m.in));
  const unsigned code = kDataByte & (std::is_same_v<Matrix, Fp4Matrix> ? 0xF : 0xFF);
  for (int64_t o = 0; o < m.out; ++o)
    for (int64_t k = 0; k < m.in; ++k) CHECK(m.code(o, k) == code && m.scale(o, k) == kDataByte);
}

void check_bound(const ModelWeights& weights) {
  const AttentionWeights& attention = weights.layers[0].attention;
  const MoeWeights& moe = weights.layers[0].moe;
  for (const Fp8Matrix* m : {&attention.wq_a, &attention.wq_b, &attention.wkv, &attention.wo_a, &attention.wo_b,
                             &moe.shared.w1, &moe.shared.w2, &moe.shared.w3})
    read_all(*m);
  for (const Fp4Matrix* m : {&moe.experts[0].w1, &moe.experts[0].w2, &moe.experts[0].w3}) read_all(*m);
  CHECK(weights.touch_layer(0).ok() && weights.touch_expert(0, 0).ok());
}

void check_layouts(const Checkpoint& checkpoint) {
  WeightViews views;
  std::map<const WeightLayout*, WeightLayout> of_matrix;
  std::set<WeightLayout> layouts;
  for (const WeightRow& row : declare_weights(checkpoint.config(), views)) {
    if (!row.layout) continue;
    const WeightLayout layout = stored_layout(*find_stored(checkpoint, row), row);
    CHECK(of_matrix.emplace(row.layout, layout).first->second == layout);
    layouts.insert(layout);
  }
  for (const WeightLayout layout : {WeightLayout::kRows, WeightLayout::kPlanes})
    CHECK(check_layout(checkpoint, layout).ok() == (layouts.size() == 1 && layouts.contains(layout)));
  static ThreadPool pool(1);
  const auto go_on = [](uint64_t) { return true; };
  CHECK(compare_checkpoints(released(), checkpoint, pool, go_on).ok());
  CHECK(compare_checkpoints(checkpoint, released(), pool, go_on).ok());
}

}  // namespace

int fuzz_stored_planes(const uint8_t* data, size_t size) {
  auto header = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!header.ok() || !header.value().is_object()) return 0;
  const std::vector<uint8_t> shard = shard_of(std::move(header).value());
  auto checkpoint = open(shard);
  if (!checkpoint.ok()) return 0;
  const auto shared = std::make_shared<const Checkpoint>(std::move(checkpoint).value());
  const auto weights = ModelWeights::bind(shared);
  if (!weights.ok()) return 0;
  check_bound(weights.value());
  check_layouts(*shared);
  return 0;
}

}  // namespace deepinfer
