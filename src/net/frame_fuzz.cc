// SPDX-License-Identifier: MIT
// Any bytes as a frame's header and head: no crash; lengths within the limits; what is accepted encodes back to itself.
#include <algorithm>

#include "base/check.h"
#include "base/fuzz.h"
#include "net/frame.h"

namespace deepinfer {

int fuzz_frame(const uint8_t* data, size_t size) {
  const FrameLimits limits{.head_bytes_max = 64, .body_bytes_max = 4096};
  const size_t n = std::min(size, kFrameHeaderBytes);
  std::array<uint8_t, kFrameHeaderBytes> bytes{};
  std::copy_n(data, n, bytes.begin());
  const std::string magic = "DIF1";
  std::copy(magic.begin(), magic.end(), bytes.begin());
  const auto header = decode_frame_header(bytes, limits);
  if (!header.ok()) return 0;
  CHECK(header.value().head_bytes <= 64 && header.value().body_bytes <= 4096);
  std::string head(reinterpret_cast<const char*>(data) + n, size - n);
  head.resize(header.value().head_bytes);
  const auto again = encode_frame_header(header.value().type, header.value().id, head, header.value().body_bytes);
  CHECK(std::equal(again.begin(), again.begin() + 20, bytes.begin()));
  CHECK(frame_head_is_whole(again, head));
  CHECK(frame_head_is_whole(bytes, head) == (bytes == again));
  return 0;
}

}  // namespace deepinfer
