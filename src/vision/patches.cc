// SPDX-License-Identifier: MIT
#include "vision/patches.h"

#include <array>

#include "base/range.h"

namespace deepinfer {
namespace {

std::array<bf16, 256> make_levels() {
  std::array<bf16, 256> levels;
  for (int v = 0; v < 256; ++v) levels[static_cast<size_t>(v)] = to_bf16((static_cast<float>(v) / 255.f - 0.5f) / 0.5f);
  return levels;
}

}  // namespace

void write_patches(const RgbImage& canvas, int64_t patch_size, View<bf16, dim::patches, dim::in> out) {
  static const std::array<bf16, 256> levels = make_levels();
  const int64_t columns = exact_div(canvas.width, patch_size), rows = exact_div(canvas.height, patch_size);
  CHECK(out.size[0] == rows * columns && out.size[1] == 3 * patch_size * patch_size);
  for (int64_t p = 0; p < rows * columns; ++p) {
    bf16* patch = out.row(p);
    for (int64_t channel = 0; channel < 3; ++channel)
      for (int64_t y = 0; y < patch_size; ++y) {
        const uint8_t* pixel = canvas.row(p / columns * patch_size + y) + 3 * (p % columns * patch_size) + channel;
        for (int64_t x = 0; x < patch_size; ++x) *patch++ = levels[pixel[3 * x]];
      }
  }
}

}  // namespace deepinfer
