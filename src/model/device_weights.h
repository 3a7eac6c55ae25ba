// SPDX-License-Identifier: MIT
// The weights of a model in the memory of a device, in the checkpoint's packed formats: one piece of memory, every
// tensor at a multiple of 256 bytes. Engram tables lie where they are asked to. What only the image encoder reads is
// brought by a call of its own: it runs beside the engine. Every scale is looked at on the way: nothing has to be
// touched later.
#pragma once

#include <memory>

#include "base/status.h"
#include "model/weights.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace deepinfer {

// Where Engram tables lie for a device. From the files the host reads a step's rows and brings them over; out of the
// other two the device reads them itself. Never changes a result.
enum class EngramTier {
  kFiles,   // the mapped files: disk and page cache
  kPinned,  // page-locked memory of the host
  kDevice
};
const char* to_string(EngramTier tier);

class DeviceWeights {
 public:
  // Bytes of device memory that upload() needs; of the Engram tables alone.
  static int64_t size_bytes(const ModelWeights& weights, EngramTier tier = EngramTier::kFiles);
  static int64_t engram_bytes(const ModelWeights& weights);
  // With kFiles the tables' views are empty. Errors: resource_exhausted; corruption, naming a tensor with a NaN scale.
  static Result<std::unique_ptr<DeviceWeights>> upload(const ModelWeights& weights, Device& device,
                                                       EngramTier tier = EngramTier::kFiles);
  // The vision part alone; all other views are empty. Errors: resource_exhausted.
  static Result<std::unique_ptr<DeviceWeights>> upload_vision(const ModelWeights& weights, Device& device);

  const WeightViews& views() const { return views_; }
  int64_t size_bytes() const { return memory_.size_bytes(); }

 private:
  Status bring(const ModelWeights& weights, Device& device, bool is_vision, EngramTier tier);

  WeightViews views_;
  Buffer<uint8_t> memory_, pinned_;  // the second: Engram tables in the host's memory
};

}  // namespace deepinfer
