// SPDX-License-Identifier: MIT
// CRC-32C (Castagnoli; iSCSI, RFC 3720 appendix B.4): finds any single flipped bit and any burst of 32. Any thread.
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

uint32_t crc32c(std::span<const uint8_t> bytes);

}  // namespace deepinfer
