// SPDX-License-Identifier: MIT
// The checksum of base/crc32c.h for bytes in bulk: ISA-L folds them by carry-less multiplication, several times as
// fast, and every byte that a store delivers passes here twice. Any thread.
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

uint32_t bulk_crc32c(std::span<const uint8_t> bytes);

}  // namespace deepinfer
