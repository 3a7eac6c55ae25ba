// SPDX-License-Identifier: MIT
// PNG, JPEG, WebP and GIF bytes to RGB pixels, as Pillow's open().convert("RGB") gives them: alpha is dropped (not
// blended), EXIF rotation and colour profiles are ignored, 16-bit samples keep their high byte (16-bit grey saturates
// at 255), palettes are looked up, CMYK follows Adobe's inverted convention, and of an animation the first frame
// counts. The format is told by its first bytes, never by a name. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "vision/rgb_image.h"

namespace deepinfer {

// Checked in this order before a pixel is decoded: bytes, sides, pixels. Defaults are those of the official serving
// side.
struct ImageLimits {
  int64_t encoded_bytes_max = int64_t{32} << 20;
  int64_t side_max = 8192;
  int64_t pixels_max = int64_t{8192} * 8192;
};

// Limits of a request as a whole, and what they leave to each image: the longest side halves from 15 images on.
inline constexpr int64_t kImagesPerRequestMax = 600;
inline constexpr int64_t kImageBytesPerRequestMax = int64_t{64} << 20;
ImageLimits image_limits_for(int64_t num_images);

enum class ImageFormat { kPng, kJpeg, kWebp, kGif };
std::string_view to_string(ImageFormat format);

struct ImageHeader {
  ImageFormat format = ImageFormat::kPng;
  int64_t width = 0, height = 0;  // of the decoded image; at least 1
};

// Reads the header alone, to plan (count tokens) before decoding. Errors as decode_image.
Result<ImageHeader> read_image_header(std::span<const uint8_t> bytes, const ImageLimits& limits);

// Errors: invalid_argument for an unknown format, a zero size, or damaged or truncated data (what, in which format);
// resource_exhausted beyond a limit (which one, its value, what came).
Result<RgbImage> decode_image(std::span<const uint8_t> bytes, const ImageLimits& limits);

}  // namespace deepinfer
