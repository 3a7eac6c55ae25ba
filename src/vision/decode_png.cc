// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "vision/image_codecs.h"
#include "vision/png_reader.h"

namespace deepinfer {
namespace {

// Signature, then the IHDR chunk: length 13, its name, width, height (big endian), bit depth, colour type, ...
constexpr std::array<uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr size_t kWidthAt = 16, kHeightAt = 20, kBitDepthAt = 24, kColorTypeAt = 25, kHeaderBytes = 33;

int64_t big_endian_u32(EncodedImage bytes, size_t at) {
  return int64_t{bytes[at]} << 24 | int64_t{bytes[at + 1]} << 16 | int64_t{bytes[at + 2]} << 8 | int64_t{bytes[at + 3]};
}

bool is_grey16(EncodedImage bytes) { return bytes[kBitDepthAt] == 16 && bytes[kColorTypeAt] == 0; }

Status read_pixels(EncodedImage bytes, ImageSize size, PngLayout layout, uint8_t* pixels) {
  PngSource source{bytes.data(), bytes.size(), 0};
  char message[kPngMessageBytes];
  if (!read_png_pixels(&source, static_cast<uint32_t>(size.width), static_cast<uint32_t>(size.height), layout, pixels,
                       message))
    return invalid_argument(std::string("cannot be decoded: ") + message);
  return {};
}

}  // namespace

bool is_png(EncodedImage bytes) {
  return bytes.size() >= kSignature.size() && std::equal(kSignature.begin(), kSignature.end(), bytes.begin());
}

Result<ImageSize> read_png_size(EncodedImage bytes) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data() + 8, "\0\0\0\rIHDR", 8) != 0)
    return invalid_argument("no IHDR chunk after the signature");
  return ImageSize{big_endian_u32(bytes, kWidthAt), big_endian_u32(bytes, kHeightAt)};
}

Result<RgbImage> decode_png(EncodedImage bytes, ImageSize size) {
  RgbImage image(size.width, size.height);
  if (!is_grey16(bytes)) {
    TRY(read_pixels(bytes, size, PngLayout::kRgb8, image.pixels.data()));
    return image;
  }
  Buffer<uint8_t> grey(size.width * size.height * 2);
  TRY(read_pixels(bytes, size, PngLayout::kGrey16, grey.data()));
  for (int64_t i = 0; i < size.width * size.height; ++i) {
    const uint8_t level = grey[2 * i] != 0 ? 255 : grey[2 * i + 1];
    std::memset(image.pixels.data() + 3 * i, level, 3);
  }
  return image;
}

}  // namespace deepinfer
