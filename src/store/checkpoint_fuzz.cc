// SPDX-License-Identifier: MIT
// Any bytes as a checkpoint: no crash, memory bounded by the input; what is accepted encodes back to itself.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/fuzz.h"
#include "store/bulk_crc32c.h"
#include "store/byte_fields.h"
#include "store/store_recovery.h"

namespace deepinfer {

int fuzz_checkpoint(const uint8_t* data, size_t size) {
  (void)decode_checkpoint({data, size}).ok();
  std::vector<uint8_t> bytes(static_cast<size_t>(kPageBytes), 0);  // the input as the payload of a sound head
  bytes.insert(bytes.end(), data, data + size);
  FieldWriter head(bytes);
  head.put(uint64_t{0x31544b5043525453});
  head.put(kStoreLayout);
  head.put(static_cast<uint64_t>(size));
  head.put(bulk_crc32c({data, size}));
  head.put(bulk_crc32c(std::span<const uint8_t>(bytes).first(head.position())));
  const auto checkpoint = decode_checkpoint(bytes);
  if (!checkpoint.ok()) return 0;
  const auto again = encode_checkpoint(checkpoint.value());
  CHECK(std::equal(bytes.begin(), bytes.end(), again.begin()));
  return 0;
}

}  // namespace deepinfer
