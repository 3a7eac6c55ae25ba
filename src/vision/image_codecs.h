// SPDX-License-Identifier: MIT
// One codec per format behind decode_image: how to read a header, how to decode pixels. Decoders are called only after
// the header passed the limits, and write nothing but the image they return. Errors are invalid_argument without the
// format's name, which the caller puts in front. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "vision/rgb_image.h"

namespace deepinfer {

struct ImageSize {
  int64_t width = 0, height = 0;
};

using EncodedImage = std::span<const uint8_t>;

bool is_png(EncodedImage bytes);
bool is_jpeg(EncodedImage bytes);
bool is_webp(EncodedImage bytes);
bool is_gif(EncodedImage bytes);

Result<ImageSize> read_png_size(EncodedImage bytes);
Result<ImageSize> read_jpeg_size(EncodedImage bytes);
Result<ImageSize> read_webp_size(EncodedImage bytes);
Result<ImageSize> read_gif_size(EncodedImage bytes);

// `size` is what read_..._size gave for the same bytes.
Result<RgbImage> decode_png(EncodedImage bytes, ImageSize size);
Result<RgbImage> decode_jpeg(EncodedImage bytes, ImageSize size);
Result<RgbImage> decode_webp(EncodedImage bytes, ImageSize size);
Result<RgbImage> decode_gif(EncodedImage bytes, ImageSize size);

}  // namespace deepinfer
