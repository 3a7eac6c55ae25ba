// SPDX-License-Identifier: MIT
#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "model/weight_table.h"

namespace deepinfer {

// One flag for the dense tensors of each layer, then one for each routed expert of each layer.
struct ModelWeights::TouchStates {
  TouchStates(size_t num_layers, size_t experts_max) : stride(experts_max + 1), sound(num_layers * stride) {}
  std::atomic<bool>& of(int layer, int expert) {
    return sound[static_cast<size_t>(layer) * stride + static_cast<size_t>(expert + 1)];
  }
  size_t stride;
  std::vector<std::atomic<bool>> sound;
};

namespace {

constexpr size_t kProblemsShown = 8;

Status inventory_status(const std::vector<std::string>& problems) {
  if (problems.empty()) return {};
  std::string message;
  for (size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i) message += (i ? "; " : "") + problems[i];
  if (problems.size() > kProblemsShown)
    message += "; and " + std::to_string(problems.size() - kProblemsShown) + " more";
  return corruption(message);
}

// The tensor's bytes; of a copy where the file has them at an address its element type must not have.
const uint8_t* aligned_bytes(std::span<const uint8_t> bytes, size_t alignment, std::vector<Buffer<uint8_t>>& copies) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0) return bytes.data();
  copies.emplace_back(static_cast<int64_t>(bytes.size()));
  std::memcpy(copies.back().data(), bytes.data(), bytes.size());
  return copies.back().data();
}

}  // namespace

ModelWeights::ModelWeights() = default;
ModelWeights::~ModelWeights() = default;
ModelWeights::ModelWeights(ModelWeights&&) noexcept = default;

Result<ModelWeights> ModelWeights::bind(std::shared_ptr<const Checkpoint> checkpoint) {
  ModelWeights weights;
  weights.checkpoint_ = std::move(checkpoint);
  const Checkpoint& files = *weights.checkpoint_;
  const std::vector<WeightRow> table = declare_weights(files.config(), weights);
  TRY(inventory_status(check_inventory(table, files)).prefixed(files.folder()));
  for (uint32_t i = 0; i < table.size(); ++i) {
    const WeightRow& row = table[i];
    const StoredTensor& stored = *find_stored(files, row);
    const std::span<const uint8_t> bytes = files.bytes(stored);
    if (row.layout) *row.layout = stored_layout(stored, row);
    const uint8_t* data = aligned_bytes(bytes, size_bytes(row.dtype), weights.copies_);
    std::visit([&](auto view) { *view = reinterpret_cast<std::remove_reference_t<decltype(*view)>>(data); }, row.view);
    if (row.is_scale && row.part != WeightPart::kEngramTables)
      weights.scales_.push_back({row.layer, row.expert, i, bytes});
  }
  std::ranges::stable_sort(weights.scales_, {}, [](const Scales& s) { return std::pair(s.layer, s.expert); });
  const ModelConfig& config = files.config();
  weights.touched_ =
      std::make_unique<TouchStates>(static_cast<size_t>(config.num_all_layers()),
                                    static_cast<size_t>(std::max(config.num_experts, config.draft.num_experts)));
  return weights;
}

Status ModelWeights::check_scales(int layer, int expert) const {
  std::atomic<bool>& sound = touched_->of(layer, expert);
  if (sound.load(std::memory_order_acquire)) return {};
  const auto place = [](const Scales& s) { return std::pair(s.layer, s.expert); };
  const std::pair wanted(layer, expert);
  const auto begin = std::ranges::lower_bound(scales_, wanted, {}, place);
  for (auto scales = begin; scales != scales_.end() && place(*scales) == wanted; ++scales) {
    const std::optional<int64_t> at = find_nan(DType::kF8E8M0, scales->bytes);
    if (!at) continue;
    WeightViews nowhere;
    const WeightRow row = declare_weights(config(), nowhere)[scales->row];
    return corruption("tensor " + row.name + ": scale " + std::to_string(*at) + " of " + shape_to_string(row.shape) +
                      " is NaN");
  }
  sound.store(true, std::memory_order_release);
  return {};
}

}  // namespace deepinfer
