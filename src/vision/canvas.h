// SPDX-License-Identifier: MIT
// The pixels the model sees: the image fitted into its planned canvas and centred on grey 127, byte for byte as
// Pillow's ImageOps.pad with bicubic resampling. The digest names the content in cache keys. Any thread.
#pragma once

#include <array>
#include <cstdint>

#include "vision/image_plan.h"
#include "vision/rgb_image.h"

namespace deepinfer {

using ImageDigest = std::array<uint8_t, 32>;

struct Canvas {
  ImagePlan plan;
  RgbImage image;      // plan.canvas_width x plan.canvas_height
  ImageDigest digest;  // SHA-256 of width, height (u32 little endian each), then the pixels
};

Canvas make_canvas(const RgbImage& image, const ImagePlanConfig& config);

// Fits `image` into width x height, keeping its aspect ratio, centred on grey 127.
RgbImage pad_to(const RgbImage& image, int64_t width, int64_t height);

}  // namespace deepinfer
