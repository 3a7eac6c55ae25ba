// SPDX-License-Identifier: MIT
#include <turbojpeg.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "vision/image_codecs.h"

namespace deepinfer {
namespace {

struct CloseDecoder {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Decoder = std::unique_ptr<void, CloseDecoder>;

// A file may repeat scans over the whole image for a few bytes each. Real ones have about ten.
constexpr int64_t kScansAlwaysAllowed = 16;
constexpr int64_t kScannedPixelsMax = int64_t{1} << 31;

struct JpegHeader {
  ImageSize size;
  int color_space = -1;
};

// The size is known even where libjpeg-turbo has no name for the subsampling or the colour space; decoding may still
// work.
Result<JpegHeader> read_header(const Decoder& decoder, EncodedImage bytes) {
  int width = 0, height = 0, subsampling = 0, color_space = -1;
  const int rc =
      tjDecompressHeader3(decoder.get(), bytes.data(), bytes.size(), &width, &height, &subsampling, &color_space);
  if (rc != 0 && (width < 1 || height < 1))
    return invalid_argument(std::string("header cannot be read: ") + tjGetErrorStr2(decoder.get()));
  return JpegHeader{{width, height}, color_space};
}

int64_t count_markers(EncodedImage bytes, uint8_t marker) {
  int64_t count = 0;
  for (size_t i = 1; i < bytes.size(); ++i) count += bytes[i - 1] == 0xFF && bytes[i] == marker;
  return count;
}

Status check_scans(EncodedImage bytes, ImageSize size) {
  constexpr uint8_t kStartOfScan = 0xDA;
  const int64_t num_scans = count_markers(bytes, kStartOfScan);
  if (num_scans > kScansAlwaysAllowed && num_scans * size.width * size.height > kScannedPixelsMax)
    return resource_exhausted(std::to_string(num_scans) + " scans of " + std::to_string(size.width) + "x" +
                              std::to_string(size.height) + " pixels, more than one image needs");
  return {};
}

// libjpeg keeps going with grey for what is missing; like Pillow we refuse that, and let its lesser warnings pass.
Status check_outcome(const Decoder& decoder, int rc, EncodedImage bytes) {
  if (rc == 0) return {};
  const std::string_view words = tjGetErrorStr2(decoder.get());
  if (tjGetErrorCode(decoder.get()) != TJERR_WARNING)
    return invalid_argument("cannot be decoded: " + std::string(words));
  constexpr uint8_t kEndOfImage = 0xD9;
  if (words.find("Premature end") != std::string_view::npos || count_markers(bytes, kEndOfImage) == 0)
    return invalid_argument("the file ends inside the image");
  return {};
}

Status decompress(const Decoder& decoder, EncodedImage bytes, ImageSize size, int pixel_format, uint8_t* pixels) {
  const int pitch = static_cast<int>(size.width) * tjPixelSize[pixel_format];
  const int rc = tjDecompress2(decoder.get(), bytes.data(), bytes.size(), pixels, static_cast<int>(size.width), pitch,
                               static_cast<int>(size.height), pixel_format, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  return check_outcome(decoder, rc, bytes);
}

// a * b / 255, rounded.
int scale255(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// Samples are stored inverted (Adobe's convention), so they are what is left of each colour.
Result<RgbImage> decode_cmyk(const Decoder& decoder, EncodedImage bytes, ImageSize size) {
  Buffer<uint8_t> cmyk(size.width * size.height * 4);
  TRY(decompress(decoder, bytes, size, TJPF_CMYK, cmyk.data()));
  RgbImage image(size.width, size.height);
  for (int64_t i = 0; i < size.width * size.height; ++i) {
    const uint8_t* in = cmyk.data() + 4 * i;
    const int key_left = in[3];
    for (int c = 0; c < 3; ++c)
      image.pixels[3 * i + c] = static_cast<uint8_t>(key_left - scale255(255 - in[c], key_left));
  }
  return image;
}

}  // namespace

bool is_jpeg(EncodedImage bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

Result<ImageSize> read_jpeg_size(EncodedImage bytes) {
  const Decoder decoder(tjInitDecompress());
  if (!decoder) return resource_exhausted("no memory for a decoder");
  ASSIGN_OR_RETURN(const JpegHeader header, read_header(decoder, bytes));
  return header.size;
}

Result<RgbImage> decode_jpeg(EncodedImage bytes, ImageSize size) {
  TRY(check_scans(bytes, size));
  const Decoder decoder(tjInitDecompress());
  if (!decoder) return resource_exhausted("no memory for a decoder");
  ASSIGN_OR_RETURN(const JpegHeader header, read_header(decoder, bytes));
  CHECK(header.size.width == size.width && header.size.height == size.height);
  if (header.color_space == TJCS_CMYK || header.color_space == TJCS_YCCK) return decode_cmyk(decoder, bytes, size);
  RgbImage image(size.width, size.height);
  TRY(decompress(decoder, bytes, size, TJPF_RGB, image.pixels.data()));
  return image;
}

}  // namespace deepinfer
