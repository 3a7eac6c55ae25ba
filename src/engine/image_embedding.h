// SPDX-License-Identifier: MIT
// Images as the rows of a prompt: encodes pixels with the model's vision part and lays the rows out as the span that
// stands in the prompt (START, image rows with a NEWLINE after each grid row, END). Thread: one caller.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/lane_start.h"
#include "model/weights.h"
#include "vision/image_encoder.h"

namespace deepinfer {

using ImageSpanRows = std::shared_ptr<const Buffer<bf16>>;  // [tokens of the span, hidden]

class ImageEmbedder {
 public:
  // `weights` outlives the object. Errors: invalid_argument for a model without a vision part.
  static Result<ImageEmbedder> create(const ModelWeights& weights, const Target& target);

  const ImagePlanConfig& plan_config() const { return encoder_.config().plan; }
  // A row's bits depend on its own image alone.
  std::vector<ImageSpanRows> embed(std::span<const RgbImage> images, const ExecutionContext& context) const;

 private:
  ImageEmbedder(const ModelWeights& weights, ImageEncoder encoder) : weights_(&weights), encoder_(std::move(encoder)) {}
  const ModelWeights* weights_;
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
