// SPDX-License-Identifier: MIT
// libpng reports errors by longjmp, which skips destructors. Everything that may be jumped over lives in png_reader.cc,
// on plain C data: no C++ object is created there. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer {

struct PngSource {
  const uint8_t* data;
  size_t size;
  size_t offset;  // bytes consumed
};

enum class PngLayout { kRgb8, kGrey16 };

inline constexpr size_t kPngMessageBytes = 128;

// Reads the whole image into `pixels`, rows without padding: [height, width, 3] bytes, or, for kGrey16 (only for 16-bit
// grey without alpha), [height, width, 2] bytes, high byte first. `width` and `height` must be the file's. False on any
// damage, with libpng's words in `message`.
bool read_png_pixels(PngSource* source, uint32_t width, uint32_t height, PngLayout layout, uint8_t* pixels,
                     char message[kPngMessageBytes]);

}  // namespace deepinfer
