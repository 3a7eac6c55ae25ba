// SPDX-License-Identifier: MIT
// Images of a prompt: from the sources that a conversation or a command line names to rows in the places of its
// placeholders. Sizes are bounded before pixels are decoded. Any thread; images are encoded one prompt at a time.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "chat/chat_request.h"
#include "engine/image_embedding.h"
#include "engine/lane_start.h"
#include "protocol/request_error.h"
#include "serve/loaded_model.h"
#include "store/block_key.h"
#include "vision/decode_image.h"

namespace deepinfer {

class PromptImages {
 public:
  // `model` outlives the object; one without a vision part takes no images.
  static Result<std::unique_ptr<PromptImages>> create(const LoadedModel& model, const Target& target, int num_threads);

  bool takes_images() const { return embedder_.has_value(); }
  // Tokens that the images add beyond their placeholders, at most `tokens_max` in all. Headers are read, no pixels.
  Refusal count(const std::vector<const ImageSource*>& sources, int64_t tokens_max, int64_t& num_extra_tokens) const;
  // Decodes, encodes and puts them where `tokens` carry placeholders, in order.
  struct Placed {
    std::vector<TokenId> tokens;
    std::vector<LaneImage> images;
    std::vector<MediaSpan> media;  // the same spans with the digests of their content
  };
  Refusal place(const std::vector<const ImageSource*>& sources, std::vector<TokenId> tokens, Placed& out);

 private:
  PromptImages(const LoadedModel& model, int num_threads) : model_(model), pool_(num_threads) {}
  Refusal read(const ImageSource& source, const ImageLimits& limits, std::string& bytes, int64_t& num_tokens) const;

  const LoadedModel& model_;
  std::optional<ImageEmbedder> embedder_;
  std::mutex embedding_;  // guards the pool and the embedder
  ThreadPool pool_;
};

}  // namespace deepinfer
