// SPDX-License-Identifier: MIT
// Decoded pixels: 8-bit RGB, rows from top to bottom, no padding between rows, no alpha.
#pragma once

#include <cstdint>

#include "tensor/buffer.h"

namespace deepinfer {

struct RgbImage {
  int64_t width = 0, height = 0;
  Buffer<uint8_t> pixels;  // [height, width, 3] R, G, B

  RgbImage() = default;
  RgbImage(int64_t w, int64_t h) : width(w), height(h), pixels(w * h * 3) {}
  uint8_t* row(int64_t y) { return pixels.data() + y * width * 3; }
  const uint8_t* row(int64_t y) const { return pixels.data() + y * width * 3; }
};

}  // namespace deepinfer
