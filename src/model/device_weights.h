// SPDX-License-Identifier: MIT
// The weights of a model in the memory of a device, in the checkpoint's packed formats: one piece of memory, every
// tensor at a multiple of 256 bytes. Engram tables stay on the host, whose rows are read step by step, and so does what
// only the image encoder reads. Every scale is looked at on the way: nothing has to be touched later.
#pragma once

#include <memory>

#include "base/status.h"
#include "model/weights.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace deepinfer {

class DeviceWeights {
 public:
  // Bytes that upload() needs.
  static int64_t size_bytes(const ModelWeights& weights);
  // Errors: resource_exhausted; corruption, naming a tensor with a NaN scale.
  static Result<std::unique_ptr<DeviceWeights>> upload(const ModelWeights& weights, Device& device);

  const WeightViews& views() const { return views_; }
  int64_t size_bytes() const { return memory_.size_bytes(); }

 private:
  WeightViews views_;
  Buffer<uint8_t> memory_;
};

}  // namespace deepinfer
