// SPDX-License-Identifier: MIT
// Bicubic resampling with antialias, equal to Pillow's Image.resize(size, BICUBIC) on 8-bit RGB: Keys cubic a = -0.5
// whose support widens when shrinking, coefficients normalised in double and rounded to 22-bit fixed point, horizontal
// pass first, each pass rounded to 8 bits, a pass whose size does not change skipped (dspark-vision.md 3.3). Any
// thread.
#pragma once

#include <cstdint>

#include "vision/rgb_image.h"

namespace deepinfer {

// width, height >= 1. Memory: the result, and width x image.height pixels between the passes.
RgbImage resample_bicubic(const RgbImage& image, int64_t width, int64_t height);

}  // namespace deepinfer
