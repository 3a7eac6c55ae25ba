// SPDX-License-Identifier: MIT
#include "vision/png_reader.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

namespace deepinfer {
namespace {

constexpr png_alloc_size_t kChunkBytesMax = 1 << 20;  // of one chunk held in memory; image data is streamed
constexpr png_uint_32 kChunksKeptMax = 64;

// Chunks that carry text, profiles or suggestions: never needed, so never unpacked.
constexpr uint8_t kIgnoredChunks[] = "eXIf\0hIST\0iCCP\0iTXt\0sPLT\0tEXt\0zTXt";
constexpr int kNumIgnoredChunks = 7;
static_assert(sizeof kIgnoredChunks == 5 * kNumIgnoredChunks);

void on_error(png_structp png, png_const_charp words) {
  std::snprintf(static_cast<char*>(png_get_error_ptr(png)), kPngMessageBytes, "%s", words);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep out, size_t num_bytes) {
  PngSource* source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (num_bytes > source->size - source->offset) png_error(png, "the file ends inside the image");
  std::memcpy(out, source->data + source->offset, num_bytes);
  source->offset += num_bytes;
}

// Everything to 8-bit RGB the way Pillow converts: high bytes, alpha and transparency dropped, small greys scaled to
// 0..255.
void set_rgb8(png_structp png, png_infop info) {
  const int color_type = png_get_color_type(png, info);
  png_set_strip_16(png);
  if (color_type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color_type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  if ((color_type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
}

// May longjmp at any call.
void read_all(png_structp png, png_infop info, uint32_t width, uint32_t height, PngLayout layout, uint8_t* pixels) {
  png_read_info(png, info);
  if (png_get_image_width(png, info) != width || png_get_image_height(png, info) != height)
    png_error(png, "the size changed");
  if (layout == PngLayout::kRgb8) set_rgb8(png, info);
  const int num_passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const size_t row_bytes = static_cast<size_t>(width) * (layout == PngLayout::kRgb8 ? 3 : 2);
  if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "unexpected samples per pixel");
  for (int pass = 0; pass < num_passes; ++pass)
    for (uint32_t y = 0; y < height; ++y) png_read_row(png, pixels + y * row_bytes, nullptr);
}

}  // namespace

bool read_png_pixels(PngSource* source, uint32_t width, uint32_t height, PngLayout layout, uint8_t* pixels,
                     char message[kPngMessageBytes]) {
  std::snprintf(message, kPngMessageBytes, "out of memory");
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, message, on_error, on_warning);
  if (!png) return false;
  png_infop info = png_create_info_struct(png);
  if (!info) {
    png_destroy_read_struct(&png, nullptr, nullptr);
    return false;
  }
  if (setjmp(png_jmpbuf(png))) {
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_set_read_fn(png, source, on_read);
  png_set_user_limits(png, width, height);
  png_set_chunk_malloc_max(png, kChunkBytesMax);
  png_set_chunk_cache_max(png, kChunksKeptMax);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, kIgnoredChunks, kNumIgnoredChunks);
  read_all(png, info, width, height, layout, pixels);
  png_destroy_read_struct(&png, &info, nullptr);
  return true;
}

}  // namespace deepinfer
