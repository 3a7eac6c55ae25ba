// SPDX-License-Identifier: MIT
#include "vision/decode_image.h"

#include <fmt/format.h>

#include "vision/image_codecs.h"

namespace deepinfer {
namespace {

struct Codec {
  ImageFormat format;
  std::string_view name;
  bool (*recognises)(EncodedImage);
  Result<ImageSize> (*read_size)(EncodedImage);
  Result<RgbImage> (*decode)(EncodedImage, ImageSize);
};

constexpr Codec kCodecs[] = {
    {ImageFormat::kPng, "PNG", is_png, read_png_size, decode_png},
    {ImageFormat::kJpeg, "JPEG", is_jpeg, read_jpeg_size, decode_jpeg},
    {ImageFormat::kWebp, "WebP", is_webp, read_webp_size, decode_webp},
    {ImageFormat::kGif, "GIF", is_gif, read_gif_size, decode_gif},
};

Result<const Codec*> find_codec(EncodedImage bytes) {
  for (const Codec& codec : kCodecs)
    if (codec.recognises(bytes)) return &codec;
  return invalid_argument(fmt::format("image: {} bytes that begin neither as PNG, JPEG, WebP nor GIF", bytes.size()));
}

Status check_size(std::string_view format, ImageSize size, const ImageLimits& limits) {
  if (size.width < 1 || size.height < 1)
    return invalid_argument(
        fmt::format("image: {}: size is {}x{}, expected at least 1x1", format, size.width, size.height));
  if (size.width > limits.side_max || size.height > limits.side_max)
    return resource_exhausted(fmt::format("image: {}: size is {}x{}, the longest side allowed is {}", format,
                                          size.width, size.height, limits.side_max));
  if (size.width * size.height > limits.pixels_max)
    return resource_exhausted(fmt::format("image: {}: {}x{} is {} pixels, at most {} are allowed", format, size.width,
                                          size.height, size.width * size.height, limits.pixels_max));
  return {};
}

struct Recognised {
  const Codec* codec;
  ImageSize size;
};

Result<Recognised> recognise(EncodedImage bytes, const ImageLimits& limits) {
  if (static_cast<int64_t>(bytes.size()) > limits.encoded_bytes_max)
    return resource_exhausted(
        fmt::format("image: {} bytes, at most {} are allowed", bytes.size(), limits.encoded_bytes_max));
  ASSIGN_OR_RETURN(const Codec* codec, find_codec(bytes));
  Result<ImageSize> size = codec->read_size(bytes);
  if (!size.ok()) return size.status().prefixed(fmt::format("image: {}", codec->name));
  TRY(check_size(codec->name, size.value(), limits));
  return Recognised{codec, size.value()};
}

}  // namespace

ImageLimits image_limits_for(int64_t num_images) {
  constexpr int64_t kManyImages = 15;
  ImageLimits limits;
  if (num_images >= kManyImages) limits.side_max /= 2;
  return limits;
}

std::string_view to_string(ImageFormat format) {
  for (const Codec& codec : kCodecs)
    if (codec.format == format) return codec.name;
  return "?";
}

Result<ImageHeader> read_image_header(std::span<const uint8_t> bytes, const ImageLimits& limits) {
  ASSIGN_OR_RETURN(const Recognised found, recognise(bytes, limits));
  return ImageHeader{found.codec->format, found.size.width, found.size.height};
}

Result<RgbImage> decode_image(std::span<const uint8_t> bytes, const ImageLimits& limits) {
  ASSIGN_OR_RETURN(const Recognised found, recognise(bytes, limits));
  Result<RgbImage> image = found.codec->decode(bytes, found.size);
  if (!image.ok()) return image.status().prefixed(fmt::format("image: {}", found.codec->name));
  return image;
}

}  // namespace deepinfer
