// SPDX-License-Identifier: MIT
#include "serve/prompt_images.h"

#include <fmt/format.h>

#include <utility>

#include "protocol/data_url.h"
#include "serve/request_error_of.h"

namespace deepinfer {
namespace {

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Bytes of the encoded image. Remote addresses are not fetched here: no request makes the program open a connection.
Refusal image_bytes(const ImageSource& source, std::string& out) {
  if (source.kind == ImageSource::Kind::kBytes) {
    out = source.value;
    return {};
  }
  if (source.kind == ImageSource::Kind::kUrl)
    return refuse("Remote image URLs are not enabled; send the image as a data: URL.", source.path);
  const auto url = parse_data_url(source.value);
  auto bytes = url ? data_url_bytes(*url) : std::nullopt;
  if (!bytes) return refuse("The image's data: URL is damaged.", source.path);
  out = std::move(*bytes);
  return {};
}

}  // namespace

Result<std::unique_ptr<PromptImages>> PromptImages::create(const LoadedModel& model, const Target& target,
                                                           int num_threads) {
  const bool sees = model.weights->config().vision.has_value();
  std::unique_ptr<PromptImages> made(new PromptImages(model, sees ? num_threads : 1));
  if (sees) {
    ASSIGN_OR_RETURN(ImageEmbedder embedder, ImageEmbedder::create(*model.weights, target));
    made->embedder_.emplace(std::move(embedder));
  }
  return made;
}

Refusal PromptImages::read(const ImageSource& source, const ImageLimits& limits, std::string& bytes,
                           int64_t& num_tokens) const {
  if (!embedder_) return refuse("This model does not take images.", source.path);
  REFUSE_IF(image_bytes(source, bytes));
  auto header = read_image_header(bytes_of(bytes), limits);
  if (!header.ok()) return refuse(header.status().message(), source.path);
  num_tokens = plan_image(header->width, header->height, embedder_->plan_config()).num_tokens;
  return {};
}

Refusal PromptImages::count(const std::vector<const ImageSource*>& sources, int64_t tokens_max,
                            int64_t& num_extra_tokens) const {
  num_extra_tokens = 0;
  const ImageLimits limits = image_limits_for(static_cast<int64_t>(sources.size()));
  for (const ImageSource* source : sources) {
    std::string bytes;
    int64_t num_tokens = 0;
    REFUSE_IF(read(*source, limits, bytes, num_tokens));
    num_extra_tokens += num_tokens - 1;
    if (num_extra_tokens > tokens_max) return refuse("The images alone exceed the context.", source->path);
  }
  return {};
}

Refusal PromptImages::place(const std::vector<const ImageSource*>& sources, std::vector<TokenId> tokens, Placed& out) {
  out.tokens = std::move(tokens);
  if (sources.empty()) return {};
  const ImageLimits limits = image_limits_for(static_cast<int64_t>(sources.size()));
  std::vector<RgbImage> decoded;
  std::vector<Sha256Digest> digests;
  for (const ImageSource* source : sources) {
    std::string bytes;
    int64_t num_tokens = 0;
    REFUSE_IF(read(*source, limits, bytes, num_tokens));
    auto image = decode_image(bytes_of(bytes), limits);
    if (!image.ok()) return refuse(image.status().message(), source->path);
    decoded.push_back(std::move(image).value());
    digests.push_back(sha256(bytes_of(bytes)));
  }
  std::vector<ImageSpanRows> spans;
  {
    const std::lock_guard lock(embedding_);
    auto embedded = embedder_->embed(decoded, &pool_);
    if (!embedded.ok()) return request_error_of(embedded.status());
    spans = std::move(embedded).value();
  }
  const ModelConfig& config = model_.weights->config();
  auto placed = place_images(out.tokens, config.image_token_id, spans, config.hidden);
  if (!placed.ok()) return request_error_of(placed.status());
  out.tokens = std::move(placed->tokens);
  out.images = std::move(placed->images);
  for (size_t i = 0; i < out.images.size(); ++i)
    out.media.push_back({out.images[i].positions.begin, out.images[i].positions.end, digests[i]});
  return {};
}

}  // namespace deepinfer
