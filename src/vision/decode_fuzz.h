// SPDX-License-Identifier: MIT
// What the four codec fuzzers share. Fuzzing only.
#pragma once

#include <span>

#include "base/check.h"
#include "vision/decode_image.h"

namespace deepinfer {

inline int decode_as(ImageFormat format, std::span<const uint8_t> bytes) {
  ImageLimits limits;
  limits.side_max = 2048;
  limits.pixels_max = 1 << 18;  // small, so that inputs are many
  const auto header = read_image_header(bytes, limits);
  const auto image = decode_image(bytes, limits);
  if (!header.ok()) {
    CHECK(!image.ok());
    return 0;
  }
  if (header.value().format != format || !image.ok()) return 0;
  const RgbImage& got = image.value();
  CHECK(got.width == header.value().width && got.height == header.value().height);
  CHECK(got.width * got.height <= limits.pixels_max && got.pixels.size() == got.width * got.height * 3);
  return 0;
}

}  // namespace deepinfer
