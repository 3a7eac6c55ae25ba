// SPDX-License-Identifier: MIT
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>
#include <string>

#include "vision/image_codecs.h"

namespace deepinfer {
namespace {

struct CloseDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, CloseDemuxer>;

Result<Demuxer> open(EncodedImage bytes) {
  const WebPData data{bytes.data(), bytes.size()};
  Demuxer demuxer(WebPDemux(&data));
  if (!demuxer) return invalid_argument("damaged or truncated container");
  return demuxer;
}

// An animation's frame may cover a part of the canvas; the rest of the first one is black (transparent, alpha dropped).
Status decode_frame(const WebPIterator& frame, RgbImage& image) {
  if (frame.x_offset < 0 || frame.y_offset < 0 || frame.x_offset + frame.width > image.width ||
      frame.y_offset + frame.height > image.height)
    return invalid_argument("the first frame leaves the canvas");
  uint8_t* out = image.row(frame.y_offset) + 3 * frame.x_offset;
  const int stride = static_cast<int>(3 * image.width);
  const size_t out_bytes = static_cast<size_t>(image.pixels.data() + image.pixels.size() - out);
  if (!WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, out, out_bytes, stride))
    return invalid_argument("cannot be decoded: damaged image data");
  return {};
}

}  // namespace

bool is_webp(EncodedImage bytes) {
  return bytes.size() >= 16 && std::memcmp(bytes.data(), "RIFF", 4) == 0 &&
         std::memcmp(bytes.data() + 8, "WEBPVP8", 7) == 0;
}

Result<ImageSize> read_webp_size(EncodedImage bytes) {
  ASSIGN_OR_RETURN(const Demuxer demuxer, open(bytes));
  return ImageSize{WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                   WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT)};
}

Result<RgbImage> decode_webp(EncodedImage bytes, ImageSize size) {
  ASSIGN_OR_RETURN(const Demuxer demuxer, open(bytes));
  WebPIterator frame;
  if (!WebPDemuxGetFrame(demuxer.get(), 1, &frame)) return invalid_argument("no image in the container");
  const std::unique_ptr<WebPIterator, void (*)(WebPIterator*)> release(&frame, WebPDemuxReleaseIterator);
  RgbImage image(size.width, size.height);
  TRY(decode_frame(frame, image));
  return image;
}

}  // namespace deepinfer
