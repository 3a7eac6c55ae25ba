// SPDX-License-Identifier: MIT
// The first frame only: records are read one by one up to it, so later frames cost nothing.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "vision/image_codecs.h"

namespace deepinfer {
namespace {

struct GifSource {
  EncodedImage bytes;
  size_t offset = 0;
};

int read_bytes(GifFileType* gif, GifByteType* out, int num_bytes) {
  GifSource* source = static_cast<GifSource*>(gif->UserData);
  const size_t count = std::min(static_cast<size_t>(num_bytes), source->bytes.size() - source->offset);
  if (count > 0) std::memcpy(out, source->bytes.data() + source->offset, count);
  source->offset += count;
  return static_cast<int>(count);
}

struct CloseGif {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, CloseGif>;

Status damaged(const char* where, int error) {
  const char* words = GifErrorString(error);
  return invalid_argument(std::string(where) + ": " + (words ? words : "damaged or truncated"));
}

// What stands before the first frame's pixels.
struct FirstFrame {
  GifSource source;  // the reader keeps a pointer to it
  Gif gif;
  int transparent_index = -1;
};

Status read_extension(GifFileType* gif, FirstFrame& frame) {
  int code = 0;
  GifByteType* block = nullptr;  // its first byte is its length
  if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return damaged("extension", gif->Error);
  if (block && code == GRAPHICS_EXT_FUNC_CODE && block[0] >= 4 && (block[1] & 1)) frame.transparent_index = block[4];
  while (block)
    if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return damaged("extension", gif->Error);
  return {};
}

// Reads up to and including the first image descriptor.
Status open_first_frame(EncodedImage bytes, FirstFrame& frame) {
  int error = 0;
  frame.source = {bytes, 0};
  frame.gif.reset(DGifOpen(&frame.source, read_bytes, &error));
  if (!frame.gif) return damaged("header", error);
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(frame.gif.get(), &type) == GIF_ERROR) return damaged("record", frame.gif->Error);
    if (type == TERMINATE_RECORD_TYPE) return invalid_argument("no image before the end");
    if (type == EXTENSION_RECORD_TYPE) TRY(read_extension(frame.gif.get(), frame));
    if (type != IMAGE_DESC_RECORD_TYPE) continue;
    if (DGifGetImageDesc(frame.gif.get()) == GIF_ERROR) return damaged("image descriptor", frame.gif->Error);
    return {};
  }
}

// The screen, or what the first frame needs beyond it.
ImageSize canvas_size(const GifFileType& gif) {
  const GifImageDesc& at = gif.Image;
  return {std::max<int64_t>(gif.SWidth, int64_t{at.Left} + at.Width),
          std::max<int64_t>(gif.SHeight, int64_t{at.Top} + at.Height)};
}

using Palette = std::array<std::array<uint8_t, 3>, 256>;

// Indices beyond the colour map are black; without a map an index is its own grey, and so are those of a map that is a
// grey ramp, as Pillow reads such files as grey.
Palette make_palette(const ColorMapObject* map) {
  Palette palette{};
  bool is_grey_ramp = true;
  for (int i = 0; map && i < map->ColorCount && i < 256; ++i) {
    const GifColorType& c = map->Colors[i];
    palette[static_cast<size_t>(i)] = {c.Red, c.Green, c.Blue};
    is_grey_ramp = is_grey_ramp && c.Red == i && c.Green == i && c.Blue == i;
  }
  for (size_t i = 0; is_grey_ramp && i < 256; ++i) palette[i].fill(static_cast<uint8_t>(i));
  return palette;
}

// Row numbers in the order the file has them.
std::vector<int> row_order(int height, bool is_interlaced) {
  static constexpr int kFirst[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  std::vector<int> order;
  if (!is_interlaced)
    for (int y = 0; y < height; ++y) order.push_back(y);
  else
    for (int pass = 0; pass < 4; ++pass)
      for (int y = kFirst[pass]; y < height; y += kStep[pass]) order.push_back(y);
  return order;
}

void write_row(const std::vector<uint8_t>& indices, const Palette& palette, uint8_t* out) {
  for (size_t x = 0; x < indices.size(); ++x) std::memcpy(out + 3 * x, palette[indices[x]].data(), 3);
}

}  // namespace

bool is_gif(EncodedImage bytes) {
  return bytes.size() >= 6 &&
         (std::memcmp(bytes.data(), "GIF87a", 6) == 0 || std::memcmp(bytes.data(), "GIF89a", 6) == 0);
}

Result<ImageSize> read_gif_size(EncodedImage bytes) {
  FirstFrame frame;
  TRY(open_first_frame(bytes, frame));
  if (frame.gif->Image.Width < 1 || frame.gif->Image.Height < 1) return invalid_argument("the first frame is empty");
  return canvas_size(*frame.gif);
}

Result<RgbImage> decode_gif(EncodedImage bytes, ImageSize size) {
  FirstFrame frame;
  TRY(open_first_frame(bytes, frame));
  const GifImageDesc& at = frame.gif->Image;
  const Palette palette = make_palette(at.ColorMap ? at.ColorMap : frame.gif->SColorMap);
  RgbImage image(size.width, size.height);
  const auto& outside = palette[static_cast<size_t>(std::max(frame.transparent_index, 0))];
  for (int64_t i = 0; i < size.width * size.height; ++i) std::memcpy(image.pixels.data() + 3 * i, outside.data(), 3);
  std::vector<uint8_t> indices(static_cast<size_t>(at.Width));
  for (const int y : row_order(at.Height, at.Interlace)) {
    if (DGifGetLine(frame.gif.get(), indices.data(), at.Width) == GIF_ERROR) return damaged("pixels", frame.gif->Error);
    write_row(indices, palette, image.row(at.Top + y) + 3 * at.Left);
  }
  return image;
}

}  // namespace deepinfer
