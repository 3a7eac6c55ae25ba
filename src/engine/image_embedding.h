// SPDX-License-Identifier: MIT
// Images as the rows of a prompt: encodes pixels with the model's vision part and lays the rows out as the span that
// stands in the prompt (START, image rows with a NEWLINE after each grid row, END). For a device the vision part's
// weights are brought there and images are encoded in a stream beside the engine's; rows come back to the host, and go
// to the device again with the step that needs them. Thread: one caller at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/lane_start.h"
#include "model/device_weights.h"
#include "model/weights.h"
#include "tensor/device.h"
#include "tensor/scratch.h"
#include "vision/image_encoder.h"

namespace deepinfer {

using ImageSpanRows = std::shared_ptr<const Buffer<bf16>>;  // [tokens of the span, hidden]

class ImageEmbedder {
 public:
  // `weights` outlives the object. `cuda` says which device a kCuda target is. Errors: invalid_argument for a model
  // without a vision part; of a device unavailable, resource_exhausted.
  static Result<ImageEmbedder> create(const ModelWeights& weights, const Target& target, const CudaOptions& cuda = {});

  const ImagePlanConfig& plan_config() const { return encoder_.config().plan; }
  // A row's bits depend on its own image alone. `pool` is the host's; null: the calling thread alone. Errors:
  // resource_exhausted where the device has no room for the activations, the device's first fault.
  Result<std::vector<ImageSpanRows>> embed(std::span<const RgbImage> images, ThreadPool* pool);

 private:
  // Where the tower runs; empty on the host.
  struct Place {
    std::unique_ptr<Device> device;  // first: the others lie in its memory
    std::unique_ptr<DeviceWeights> weights;
  };
  ImageEmbedder(const ModelWeights& weights, Place place, ImageEncoder encoder);
  Status check_room(std::span<const Canvas* const> canvases);

  const ModelWeights* weights_;
  Place place_;
  Scratch scratch_;
  int64_t scratch_bytes_ = 0;  // of the largest pass so far
  ImageEncoder encoder_;
};

// A prompt whose image placeholders have become spans.
struct PlacedImages {
  std::vector<TokenId> tokens;
  std::vector<LaneImage> images;
};

// Puts the spans, in order, where `tokens` carry the image id: either one id for an image, which is expanded, or a run
// that has the span's length already. Errors: invalid_argument when there are more or fewer placeholders than spans.
Result<PlacedImages> place_images(std::span<const TokenId> tokens, TokenId image_token,
                                  std::span<const ImageSpanRows> spans, int64_t hidden);

}  // namespace deepinfer
