// SPDX-License-Identifier: MIT
// Any page: no crash; a page that is accepted encodes back to the same bytes.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/fuzz.h"
#include "store/bulk_crc32c.h"
#include "store/byte_fields.h"
#include "store/extent.h"

namespace deepinfer {

int fuzz_extent(const uint8_t* data, size_t size) {
  std::vector<uint8_t> page(static_cast<size_t>(kPageBytes), 0);
  std::copy_n(data, std::min(size, page.size()), page.begin());
  (void)decode_row_header(page).ok();
  FieldWriter(page).put(uint64_t{0x31574f5254584544});  // let most inputs past the magic and the checksum
  FieldWriter(std::span<uint8_t>(page).last(4)).put(bulk_crc32c(std::span(page).first(page.size() - 4)));
  const auto header = decode_row_header(page);
  if (!header.ok()) return 0;
  std::vector<uint8_t> again(page.size());
  encode_row_header(header.value(), again);
  const auto second = decode_row_header(again);
  CHECK(second.ok() && second.value().num_blocks() == header.value().num_blocks());
  CHECK(std::equal(again.begin(), again.begin() + 100, page.begin()));
  return 0;
}

}  // namespace deepinfer
