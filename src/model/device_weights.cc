// SPDX-License-Identifier: MIT
#include "model/device_weights.h"

#include <algorithm>
#include <cstring>

#include "base/range.h"
#include "model/weight_table.h"

namespace deepinfer {
namespace {

constexpr int64_t kAlignment = 256, kPieceBytes = int64_t{32} << 20;

// Where a tensor goes when the vision part is brought, or everything else; kFiles: nowhere.
EngramTier place_of(const WeightRow& row, bool is_vision, EngramTier engram) {
  if ((row.part == WeightPart::kVision) != is_vision) return EngramTier::kFiles;
  return row.part == WeightPart::kEngramTables ? engram : EngramTier::kDevice;
}

int64_t bytes_at(const std::vector<WeightRow>& table, EngramTier place, bool is_vision, EngramTier engram) {
  int64_t bytes = 0;
  for (const WeightRow& row : table)
    if (place_of(row, is_vision, engram) == place) bytes += round_up<int64_t>(row.size_bytes(), kAlignment);
  return bytes;
}

Result<std::span<const uint8_t>> bytes_of(const ModelWeights& weights, const WeightRow& row) {
  const StoredTensor& stored = *find_stored(weights.checkpoint(), row);
  if (stored_layout(stored, row) == WeightLayout::kPlanes)
    return unimplemented("tensor " + stored.info.name +
                         " stands in planes, a layout for the CPU: run on the original checkpoint, or bring this one "
                         "back with `deepinfer convert --layout rows`");
  return weights.checkpoint().bytes(stored);
}

// Two pieces of staging memory in turn: one is filled while the other is copied.
class Uploader {
 public:
  explicit Uploader(Device& device) : device_(device) {
    for (Buffer<uint8_t>& piece : pieces_) piece = Buffer<uint8_t>(device.staging(), kPieceBytes);
  }
  Status copy(uint8_t* to, std::span<const uint8_t> from) {
    TRY(device_.status());
    for (size_t begin = 0; begin < from.size(); begin += static_cast<size_t>(kPieceBytes)) {
      const size_t size = std::min(from.size() - begin, static_cast<size_t>(kPieceBytes));
      if (used_[next_]) TRY(device_.wait());
      std::memcpy(pieces_[next_].data(), from.data() + begin, size);
      device_.copy(to + begin, pieces_[next_].data(), static_cast<int64_t>(size));
      used_[next_] = true;
      next_ = 1 - next_;
    }
    return {};
  }

 private:
  Device& device_;
  Buffer<uint8_t> pieces_[2];
  bool used_[2] = {};
  size_t next_ = 0;
};

Status check_scales(const WeightRow& row, std::span<const uint8_t> bytes) {
  if (!row.is_scale) return {};
  const std::optional<int64_t> nan = find_nan(row.dtype, bytes);
  if (!nan) return {};
  return corruption("tensor " + row.name + ": scale " + std::to_string(*nan) + " is NaN");
}

}  // namespace

const char* to_string(EngramTier tier) {
  constexpr const char* kNames[] = {"files", "pinned host memory", "device memory"};
  return kNames[static_cast<int>(tier)];
}

int64_t DeviceWeights::size_bytes(const ModelWeights& weights, EngramTier tier) {
  WeightViews nowhere;
  return bytes_at(declare_weights(weights.config(), nowhere), EngramTier::kDevice, false, tier);
}

int64_t DeviceWeights::engram_bytes(const ModelWeights& weights) {
  return size_bytes(weights, EngramTier::kDevice) - size_bytes(weights);
}

Status DeviceWeights::bring(const ModelWeights& weights, Device& device, bool is_vision, EngramTier tier) {
  const std::vector<WeightRow> table = declare_weights(weights.config(), views_);
  memory_ = Buffer<uint8_t>(device.memory(), bytes_at(table, EngramTier::kDevice, is_vision, tier));
  pinned_ = Buffer<uint8_t>(device.staging(), bytes_at(table, EngramTier::kPinned, is_vision, tier));
  TRY(device.status());
  Uploader uploader(device);
  uint8_t *next = memory_.data(), *next_pinned = pinned_.data();
  for (const WeightRow& row : table) {
    const EngramTier place = place_of(row, is_vision, tier);
    if (place == EngramTier::kFiles) continue;
    ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, bytes_of(weights, row));
    TRY(check_scales(row, bytes));
    uint8_t*& to = place == EngramTier::kDevice ? next : next_pinned;
    if (place == EngramTier::kDevice) TRY(uploader.copy(to, bytes));
    else std::ranges::copy(bytes, to);
    std::visit([&](auto view) { *view = reinterpret_cast<std::remove_reference_t<decltype(*view)>>(to); }, row.view);
    to += round_up<int64_t>(row.size_bytes(), kAlignment);
  }
  return device.wait();
}

Result<std::unique_ptr<DeviceWeights>> DeviceWeights::upload(const ModelWeights& weights, Device& device,
                                                             EngramTier tier) {
  auto uploaded = std::make_unique<DeviceWeights>();
  TRY(uploaded->bring(weights, device, false, tier));
  return uploaded;
}

Result<std::unique_ptr<DeviceWeights>> DeviceWeights::upload_vision(const ModelWeights& weights, Device& device) {
  auto uploaded = std::make_unique<DeviceWeights>();
  TRY(uploaded->bring(weights, device, true, EngramTier::kFiles));
  return uploaded;
}

}  // namespace deepinfer
