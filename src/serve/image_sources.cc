// SPDX-License-Identifier: MIT
#include "serve/image_sources.h"

#include <algorithm>
#include <utility>

namespace deepinfer {

Refusal fetch_images(Conversation& conversation, const UrlFetchOptions& options, const RequestLimits& limits,
                     const HttpFields& fields) {
  size_t num_bytes_left = limits.images_total_bytes_max;
  for (Message& message : conversation.messages) {
    for (ImageSource& image : message.content.images) {
      if (image.kind != ImageSource::Kind::kUrl) continue;
      UrlFetchOptions one = options;
      one.bytes_max = std::min(limits.image_bytes_max, num_bytes_left);
      auto bytes = fetch_url(image.value, one, fields);
      if (!bytes.ok()) return refuse("The image cannot be read: " + bytes.status().message() + ".", image.path);
      num_bytes_left -= bytes->size();
      image.value = std::move(*bytes);
      image.kind = ImageSource::Kind::kBytes;
    }
  }
  return {};
}

}  // namespace deepinfer
