// SPDX-License-Identifier: MIT
// The synthetic picture of the golden data, and model A's image settings. Tests only.
#pragma once

#include <cstdint>

#include "vision/image_plan.h"
#include "vision/rgb_image.h"

namespace deepinfer {

// R = 3x + 5y + 7k, G = 7x + 2y + 31, B = x^2 + 11y + k, all mod 256.
inline RgbImage make_test_image(int64_t width, int64_t height, int k) {
  RgbImage image(width, height);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      uint8_t* pixel = image.row(y) + 3 * x;
      pixel[0] = static_cast<uint8_t>(3 * x + 5 * y + 7 * k);
      pixel[1] = static_cast<uint8_t>(7 * x + 2 * y + 31);
      pixel[2] = static_cast<uint8_t>(x * x + 11 * y + k);
    }
  return image;
}

inline ImagePlanConfig model_a_plan_config() {
  ImagePlanConfig config;
  config.max_image_tokens = 64;
  config.min_pixels = 1764;
  return config;
}

}  // namespace deepinfer
