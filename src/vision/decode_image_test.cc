// SPDX-License-Identifier: MIT
// Expected pixels: Pillow (testdata/images/PROVENANCE).
#include "vision/decode_image.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"

namespace deepinfer {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes read(const std::string& name) {
  const auto bytes = read_file(DEEPINFER_TESTDATA "/images/" + name);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? Bytes(bytes.value().begin(), bytes.value().end()) : Bytes();
}

void put_be32(Bytes& bytes, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

Status decode_error(const Bytes& bytes, const ImageLimits& limits = {}) {
  const auto image = decode_image(bytes, limits);
  return image.ok() ? Status() : image.status();
}

TEST(DecodeImage, GivesPillowsPixelsForEveryStoredFile) {
  const auto text = read_file(DEEPINFER_TESTDATA "/images/expected.json");
  ASSERT_TRUE(text.ok());
  const auto expected = parse_json(text.value());
  ASSERT_TRUE(expected.ok());
  const Json::Object& files = expected.value().find("files")->as_object();
  EXPECT_GT(files.size(), 60u);
  for (const auto& [name, want] : files) {
    const auto image = decode_image(read(name), {});
    ASSERT_TRUE(image.ok()) << name << ": " << image.status().message();
    const RgbImage& got = image.value();
    EXPECT_EQ(got.width, want.find("width")->as_int()) << name;
    EXPECT_EQ(got.height, want.find("height")->as_int()) << name;
    EXPECT_EQ(std::accumulate(got.pixels.begin(), got.pixels.end(), int64_t{0}), want.find("sum")->as_int()) << name;
    EXPECT_EQ(to_hex(sha256({got.pixels.data(), static_cast<size_t>(got.pixels.size())})),
              want.find("sha256")->as_string())
        << name;
  }
}

TEST(DecodeImage, ReadsTheHeaderWithoutDecoding) {
  struct Case {
    const char* file;
    ImageFormat format;
    int64_t width, height;
  };
  for (const Case& c :
       {Case{"png_type2_depth8.png", ImageFormat::kPng, 37, 21}, Case{"jpeg_420.jpg", ImageFormat::kJpeg, 45, 31},
        Case{"webp_lossy.webp", ImageFormat::kWebp, 50, 38}, Case{"gif_large_frame.gif", ImageFormat::kGif, 15, 12}}) {
    const auto header = read_image_header(read(c.file), {});
    ASSERT_TRUE(header.ok()) << c.file << header.status().message();
    EXPECT_EQ(header.value().format, c.format);
    EXPECT_EQ(header.value().width, c.width) << c.file;
    EXPECT_EQ(header.value().height, c.height) << c.file;
  }
}

TEST(DecodeImage, RefusesAnUnknownFormatAndNothing) {
  const Bytes bmp = {'B', 'M', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(decode_error(bmp).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(decode_error({}).message(), "image: 0 bytes that begin neither as PNG, JPEG, WebP nor GIF");
}

// A file cut anywhere inside its image data must be refused, never padded with grey and never read beyond its end.
TEST(DecodeImage, RefusesEveryTruncation) {
  for (const char* file : {"png_type6_depth8.png", "png_type3_depth4_interlaced.png", "jpeg_420.jpg",
                           "jpeg_progressive.jpg", "jpeg_cmyk.jpg", "webp_lossy.webp", "webp_lossless_alpha.webp",
                           "webp_animated.webp", "gif_local.gif", "gif_interlaced.gif"}) {
    const Bytes whole = read(file);
    ASSERT_TRUE(decode_error(whole).ok()) << file;
    // PNG: without its IEND chunk and the last checksums the pixels may be whole; GIF: likewise without the trailer.
    const size_t tail = 24;
    for (size_t size = 0; size + tail < whole.size(); size += size < 64 ? 1 : 7)
      EXPECT_EQ(decode_error(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size))).code(),
                StatusCode::kInvalidArgument)
          << file << " cut at " << size;
  }
}

TEST(DecodeImage, RefusesZeroSizes) {
  Bytes png = read("png_1x1.png");
  put_be32(png, 16, 0);
  EXPECT_EQ(decode_error(png).message(), "image: PNG: size is 0x1, expected at least 1x1");
  Bytes gif = read("gif_global.gif");
  const size_t frame = 13 + 3 * 16;  // after the header and the colour map
  ASSERT_EQ(gif[frame], ',');
  gif[frame + 5] = gif[frame + 6] = 0;
  EXPECT_EQ(decode_error(gif).code(), StatusCode::kInvalidArgument);
  Bytes jpeg = read("jpeg_1x1.jpg");
  for (size_t i = 0; i + 8 < jpeg.size(); ++i)
    if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xC0) jpeg[i + 5] = jpeg[i + 6] = 0;
  EXPECT_EQ(decode_error(jpeg).code(), StatusCode::kInvalidArgument);
}

// A few bytes that announce gigabytes: refused from the header, before anything of that size is allocated.
TEST(DecodeImage, RefusesBombsFromTheHeader) {
  Bytes png = read("png_1x1.png");
  put_be32(png, 16, 0x7FFFFFFF);
  put_be32(png, 20, 0x7FFFFFFF);
  EXPECT_EQ(decode_error(png).code(), StatusCode::kResourceExhausted);
  Bytes jpeg = read("jpeg_16x1.jpg");
  for (size_t i = 0; i + 8 < jpeg.size(); ++i)
    if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xC0) jpeg[i + 5] = jpeg[i + 7] = 0xFF;
  EXPECT_EQ(decode_error(jpeg).code(), StatusCode::kResourceExhausted);
  Bytes gif = read("gif_global.gif");
  gif[7] = gif[9] = 0xFF;  // screen of 65,293 x 65,291
  EXPECT_EQ(decode_error(gif).code(), StatusCode::kResourceExhausted);
  Bytes webp = read("webp_lossless.webp");
  ASSERT_EQ(webp[20], 0x2F);
  webp[21] = webp[22] = webp[23] = 0xFF;
  EXPECT_NE(decode_error(webp).code(), StatusCode::kOk);
}

TEST(DecodeImage, SaysWhichLimitWasPassed) {
  const Bytes png = read("png_type2_depth8.png");  // 37 x 21
  ImageLimits limits;
  limits.side_max = 36;
  EXPECT_EQ(decode_error(png, limits).message(), "image: PNG: size is 37x21, the longest side allowed is 36");
  limits = {};
  limits.pixels_max = 776;
  EXPECT_EQ(decode_error(png, limits).message(), "image: PNG: 37x21 is 777 pixels, at most 776 are allowed");
  limits = {};
  limits.encoded_bytes_max = 100;
  EXPECT_EQ(decode_error(png, limits).code(), StatusCode::kResourceExhausted);
  limits.encoded_bytes_max = static_cast<int64_t>(png.size());
  EXPECT_TRUE(decode_error(png, limits).ok());
}

TEST(DecodeImage, HalvesTheLongestSideFromFifteenImagesOn) {
  EXPECT_EQ(image_limits_for(14).side_max, 8192);
  EXPECT_EQ(image_limits_for(15).side_max, 4096);
}

// Each scan of a progressive file costs a pass over the whole image for a dozen bytes.
TEST(DecodeImage, RefusesAJpegOfManyScansOverALargeImage) {
  Bytes jpeg = read("jpeg_progressive.jpg");
  size_t scan = 0, frame = 0;
  for (size_t i = 0; i + 1 < jpeg.size(); ++i) {
    if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xC2 && frame == 0) frame = i;
    if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xDA && scan == 0) scan = i;
  }
  ASSERT_TRUE(frame != 0 && scan > frame);
  jpeg[frame + 5] = jpeg[frame + 7] = 0x1F;  // about 8,000 x 8,000
  const Bytes header(jpeg.begin() + static_cast<ptrdiff_t>(scan), jpeg.begin() + static_cast<ptrdiff_t>(scan) + 14);
  for (int i = 0; i < 400; ++i) jpeg.insert(jpeg.end() - 2, header.begin(), header.end());
  EXPECT_EQ(decode_error(jpeg).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace deepinfer
