// SPDX-License-Identifier: MIT
#include "vision/canvas.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/sha256.h"
#include "vision/resample.h"

namespace deepinfer {
namespace {

constexpr uint8_t kPadGrey = 127;

// Half to even, whatever the rounding mode of the thread.
int64_t round_half_even(double x) {
  const double down = std::floor(x), rest = x - down;
  const int64_t whole = static_cast<int64_t>(down);
  if (rest != 0.5) return rest < 0.5 ? whole : whole + 1;
  return whole + (whole & 1);
}

struct FittedSize {
  int64_t width, height;
};

// The largest size of the image's shape inside width x height; one side is met exactly.
FittedSize fit(const RgbImage& image, int64_t width, int64_t height) {
  const double w = static_cast<double>(image.width), h = static_cast<double>(image.height);
  const double image_ratio = w / h, canvas_ratio = static_cast<double>(width) / static_cast<double>(height);
  if (image_ratio > canvas_ratio)
    return {width, std::max<int64_t>(round_half_even(h / w * static_cast<double>(width)), 1)};
  if (image_ratio < canvas_ratio)
    return {std::max<int64_t>(round_half_even(w / h * static_cast<double>(height)), 1), height};
  return {width, height};
}

ImageDigest digest_of(const RgbImage& image) {
  Sha256 hash;
  hash.update_u32(static_cast<uint32_t>(image.width));
  hash.update_u32(static_cast<uint32_t>(image.height));
  hash.update({image.pixels.data(), static_cast<size_t>(image.pixels.size())});
  return hash.finish();
}

}  // namespace

RgbImage pad_to(const RgbImage& image, int64_t width, int64_t height) {
  const FittedSize fitted = fit(image, width, height);
  RgbImage inner = resample_bicubic(image, fitted.width, fitted.height);
  if (fitted.width == width && fitted.height == height) return inner;
  RgbImage canvas(width, height);
  std::memset(canvas.pixels.data(), kPadGrey, static_cast<size_t>(canvas.pixels.size()));
  const int64_t left = round_half_even(static_cast<double>(width - fitted.width) * 0.5);
  const int64_t top = round_half_even(static_cast<double>(height - fitted.height) * 0.5);
  // Where the rounding of a shape beyond the canvas would overhang, the overhang is cut, as pasting does.
  const int64_t num_rows = std::min(fitted.height, height - top), num_columns = std::min(fitted.width, width - left);
  for (int64_t y = 0; y < num_rows; ++y)
    std::memcpy(canvas.row(top + y) + 3 * left, inner.row(y), static_cast<size_t>(3 * num_columns));
  return canvas;
}

Canvas make_canvas(const RgbImage& image, const ImagePlanConfig& config) {
  Canvas canvas;
  canvas.plan = plan_image(image.width, image.height, config);
  const int64_t width = canvas.plan.canvas_width, height = canvas.plan.canvas_height;
  canvas.image = canvas.plan.stretches ? resample_bicubic(image, width, height) : pad_to(image, width, height);
  canvas.digest = digest_of(canvas.image);
  return canvas;
}

}  // namespace deepinfer
