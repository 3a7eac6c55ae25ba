// SPDX-License-Identifier: MIT
#include "store/record_page.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "store/bulk_crc32c.h"
#include "store/extent.h"

namespace deepinfer {
namespace {
constexpr size_t kCrcAt = static_cast<size_t>(kPageBytes) - 4;
}

FieldWriter begin_page(std::span<uint8_t> page, uint64_t magic) {
  CHECK(page.size() == static_cast<size_t>(kPageBytes));
  std::memset(page.data(), 0, page.size());
  FieldWriter out(page);
  out.put(magic);
  out.put(kStoreLayout);
  return out;
}

void finish_page(std::span<uint8_t> page) { FieldWriter(page.subspan(kCrcAt)).put(bulk_crc32c(page.first(kCrcAt))); }

Result<FieldReader> open_page(std::span<const uint8_t> page, uint64_t magic, const char* what) {
  if (page.size() != static_cast<size_t>(kPageBytes)) return corruption(fmt::format("{}: cut short", what));
  FieldReader in(page);
  if (in.get<uint64_t>() != magic) return not_found(fmt::format("no {} here", what));
  if (FieldReader(page.subspan(kCrcAt)).get<uint32_t>() != bulk_crc32c(page.first(kCrcAt)))
    return corruption(fmt::format("{}: checksum", what));
  if (const uint32_t layout = in.get<uint32_t>(); layout != kStoreLayout)
    return unimplemented(fmt::format("{}: layout {}, this program reads {}", what, layout, kStoreLayout));
  return in;
}

}  // namespace deepinfer
