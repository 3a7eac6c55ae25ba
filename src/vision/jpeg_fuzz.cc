// SPDX-License-Identifier: MIT
// Property: any bytes decode within the limits, to the size the header announced, or give a Status.
#include "vision/decode_fuzz.h"

namespace deepinfer {

int fuzz_jpeg(const uint8_t* data, size_t size) { return decode_as(ImageFormat::kJpeg, {data, size}); }

}  // namespace deepinfer
