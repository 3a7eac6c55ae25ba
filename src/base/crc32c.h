// SPDX-License-Identifier: MIT
// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, as RFC 3720 B.4 and iSCSI have it): finds every error of up to
// 32 neighbouring bits and all single, double and odd numbers of flipped bits at the sizes we write. Thread: values.
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

// The checksum of `bytes`; with `before`, of the bytes that gave it followed by these.
uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t before = 0);

}  // namespace deepinfer
