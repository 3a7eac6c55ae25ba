// SPDX-License-Identifier: MIT
#include "engine/image_embedding.h"

#include <algorithm>
#include <string>

#include "vision/image_span.h"

namespace deepinfer {
namespace {

ImageEncoderConfig encoder_config(const ModelConfig& model) {
  const VisionConfig& vision = *model.vision;
  ImageEncoderConfig config;
  config.plan = {.patch_size = vision.patch_size,
                 .downsample_ratio = vision.downsample,
                 .max_image_tokens = vision.image_tokens_max,
                 .min_pixels = vision.pixels_min,
                 .max_wh_ratio = vision.aspect_max};
  config.num_layers = vision.num_layers;
  config.hidden = vision.hidden;
  config.num_heads = vision.num_heads;
  config.inner = vision.inner;
  config.rope_theta = vision.rope_theta;
  config.model_hidden = model.hidden;
  return config;
}

ImageEncoderWeights encoder_weights(const VisionWeights& from) {
  ImageEncoderWeights to;
  to.patch_embed = from.patch_embed;
  to.patch_embed_bias = from.patch_embed_bias;
  for (const VisionBlockWeights& block : from.blocks)
    to.layers.push_back(
        {block.norm1, block.norm2, block.wqkv, block.wqkv_bias, block.wo, block.wo_bias, block.mlp_w1, block.mlp_w2});
  to.norm = from.norm;
  to.aligner_w1 = from.aligner_w1;
  to.aligner_w1_bias = from.aligner_w1_bias;
  to.aligner_w2 = from.aligner_w2;
  to.aligner_w2_bias = from.aligner_w2_bias;
  return to;
}

ImageSpanRows lay_out(const ImageRows& image, const VisionWeights& vision, int64_t hidden) {
  const ImageSpan span{image.grid_rows, image.grid_columns};
  auto rows = std::make_shared<Buffer<bf16>>(span.num_tokens() * hidden);
  for (int64_t offset = 0; offset < span.num_tokens(); ++offset) {
    const bf16* row = nullptr;
    switch (span.kind(offset)) {
      case ImageTokenKind::kStart: row = vision.image_start.data; break;
      case ImageTokenKind::kEnd: row = vision.image_end.data; break;
      case ImageTokenKind::kNewline: row = vision.image_newline.data; break;
      default: row = image.rows.data() + span.image_row(offset) * hidden;
    }
    std::copy_n(row, hidden, rows->data() + offset * hidden);
  }
  return rows;
}

}  // namespace

ImageEmbedder::ImageEmbedder(const ModelWeights& weights, Place place, ImageEncoder encoder)
    : weights_(&weights),
      place_(std::move(place)),
      scratch_(place_.device ? Scratch(place_.device->memory()) : Scratch()),
      encoder_(std::move(encoder)) {}

Result<ImageEmbedder> ImageEmbedder::create(const ModelWeights& weights, const Target& target,
                                            const CudaOptions& cuda) {
  if (!weights.config().vision) return invalid_argument("images: this model has no vision part");
  Place place;
  if (target.backend == Backend::kCuda) {
    ASSIGN_OR_RETURN(place.device, open_cuda_device(cuda));
    ASSIGN_OR_RETURN(place.weights, DeviceWeights::upload_vision(weights, *place.device));
  }
  const VisionWeights& vision = place.weights ? place.weights->views().vision : weights.vision;
  ASSIGN_OR_RETURN(ImageEncoder encoder,
                   ImageEncoder::create(encoder_config(weights.config()), encoder_weights(vision), target));
  return ImageEmbedder(weights, std::move(place), std::move(encoder));
}

// The scratch aborts where it cannot grow; it grows in blocks, each at least twice the one before.
Status ImageEmbedder::check_room(std::span<const Canvas* const> canvases) {
  if (!place_.device) return {};
  const int64_t bytes = encoder_.scratch_bytes(canvases), free = place_.device->free_bytes();
  if (bytes <= scratch_bytes_) return {};
  if (2 * bytes > free)
    return resource_exhausted("images: the encoder needs " + std::to_string(2 * bytes) +
                              " bytes of the device's memory, which has " + std::to_string(free) +
                              " free; give the caches less");
  scratch_bytes_ = bytes;
  return {};
}

Result<std::vector<ImageSpanRows>> ImageEmbedder::embed(std::span<const RgbImage> images, ThreadPool* pool) {
  std::vector<Canvas> canvases;
  std::vector<const Canvas*> pointers;
  for (const RgbImage& image : images) canvases.push_back(make_canvas(image, plan_config()));
  for (const Canvas& canvas : canvases) pointers.push_back(&canvas);
  if (place_.device) place_.device->make_current();
  TRY(check_room(pointers));
  const ExecutionContext context{.pool = pool, .scratch = &scratch_, .device = place_.device.get()};
  ASSIGN_OR_RETURN(const std::vector<ImageRows> encoded, encoder_.encode(pointers, context));
  std::vector<ImageSpanRows> spans;
  for (const ImageRows& rows : encoded) spans.push_back(lay_out(rows, weights_->vision, weights_->config().hidden));
  return spans;
}

Result<PlacedImages> place_images(std::span<const TokenId> tokens, TokenId image_token,
                                  std::span<const ImageSpanRows> spans, int64_t hidden) {
  PlacedImages placed;
  size_t next = 0;
  for (size_t at = 0; at < tokens.size();) {
    if (tokens[at] != image_token) {
      placed.tokens.push_back(tokens[at++]);
      continue;
    }
    if (next == spans.size())
      return invalid_argument("images: a placeholder at position " + std::to_string(at) + " has no image; " +
                              std::to_string(spans.size()) + " were given");
    const size_t run = static_cast<size_t>(std::find_if(tokens.begin() + static_cast<int64_t>(at), tokens.end(),
                                                        [&](TokenId id) { return id != image_token; }) -
                                           (tokens.begin() + static_cast<int64_t>(at)));
    const size_t length = static_cast<size_t>(spans[next]->size() / hidden);
    const int64_t begin = static_cast<int64_t>(placed.tokens.size());
    placed.tokens.insert(placed.tokens.end(), length, image_token);
    placed.images.push_back({{begin, begin + static_cast<int64_t>(length)}, spans[next++]});
    at += run >= length ? length : 1;
  }
  if (next != spans.size())
    return invalid_argument("images: " + std::to_string(spans.size()) + " were given, the prompt has places for " +
                            std::to_string(next));
  return placed;
}

}  // namespace deepinfer
