// SPDX-License-Identifier: MIT
// Every tensor of a model, declared once: its name in the files, dtype, shape, the part of the model it belongs to, and
// the view it fills (specification, model.md 2). Loader, inventory check, inspect and memory plan all read this one
// table.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/weights.h"
#include "tensor/dtype.h"

namespace deepinfer {

// The rows of the specification's parameter table, model.md 6.
enum class WeightPart {
  kExperts,
  kAttention,
  kSharedExperts,
  kEmbed,
  kHead,
  kRouter,
  kCompressorAndIndexer,
  kStreamMix,
  kNorms,
  kEngramTables,
  kEngramLinears,
  kDraft,
  kVision
};
inline constexpr int kNumWeightParts = 13;
const char* to_string(WeightPart part);

struct WeightRow {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;
  WeightPart part = WeightPart::kAttention;
  int layer = -1;         // draft layers count after the backbone's; -1: of the whole model
  int expert = -1;        // routed experts only
  bool is_scale = false;  // block scales are bytes, but no parameters
  std::variant<const uint8_t**, const bf16**, const float**> view;
  WeightLayout* layout = nullptr;  // of its matrix, where the tensor's bytes depend on it and it can have planes

  int64_t num_elements() const;
  int64_t size_bytes() const;
  int64_t num_parameters() const;  // two per byte of I8
};

// Sizes `views` by `config` and lists every tensor. The rows point into `views`: it must stay where it is while `view`
// is written through.
std::vector<WeightRow> declare_weights(const ModelConfig& config, WeightViews& views);

// A tensor whose bytes stand in planes (WeightLayout) has this behind its name: whoever does not know the layout does
// not find the tensor. Another layout would get another name.
inline constexpr std::string_view kPlanesSuffix = ".planes";

// The tensor of a row, under either name; null: there is none.
const StoredTensor* find_stored(const Checkpoint& checkpoint, const WeightRow& row);
// In which layout its bytes stand.
WeightLayout stored_layout(const StoredTensor& tensor, const WeightRow& row);

// What is wrong with the tensors of `checkpoint`: one sentence for each that is missing, unknown, of another dtype or
// shape.
std::vector<std::string> check_inventory(const std::vector<WeightRow>& table, const Checkpoint& checkpoint);

// Position of the first NaN of a tensor, if there is one: e8m0 255, e4m3 0x7F and 0xFF, NaN of BF16 and F32. Reads all
// bytes. Packed e2m1 has none.
std::optional<int64_t> find_nan(DType dtype, std::span<const uint8_t> bytes);

}  // namespace deepinfer
