// SPDX-License-Identifier: MIT
// Any bytes as head, seal and footer: no crash, bounded memory; a footer that is accepted encodes back to itself.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/fuzz.h"
#include "store/bulk_crc32c.h"
#include "store/byte_fields.h"
#include "store/segment.h"

namespace deepinfer {

int fuzz_segment(const uint8_t* data, size_t size) {
  std::vector<uint8_t> page(static_cast<size_t>(kPageBytes), 0);
  std::copy_n(data, std::min(size, page.size()), page.begin());
  for (const uint64_t magic : {uint64_t{0x31474553525453}, uint64_t{0x314c4145535254}}) {
    FieldWriter(page).put(magic);
    FieldWriter(std::span<uint8_t>(page).last(4)).put(bulk_crc32c(std::span(page).first(page.size() - 4)));
    (void)decode_segment_head(page).ok();
    (void)decode_seal(page, 1 << 20).ok();
  }
  const std::span<const uint8_t> bytes(data, size);
  uint64_t num_extents = size > 0 ? data[0] : 0;
  const SegmentSeal seal{SegmentId{1}, 0, size, num_extents, bulk_crc32c(bytes)};
  const auto footer = decode_footer(seal, bytes);
  if (!footer.ok()) return 0;
  const auto again = encode_footer(SegmentId{1}, 0, footer.value());
  CHECK(std::equal(bytes.begin(), bytes.end(), again.begin()));
  return 0;
}

}  // namespace deepinfer
