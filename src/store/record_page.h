// SPDX-License-Identifier: MIT
// Pages that say what they are: magic, layout version and fields, and in their last four bytes the CRC-32C of all
// before. Heads, seals and row headers are such. Thread: one caller.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "store/byte_fields.h"

namespace deepinfer {

// Zeroes the page; the fields go where the writer stands.
FieldWriter begin_page(std::span<uint8_t> page, uint64_t magic);
void finish_page(std::span<uint8_t> page);
// Stands before the fields. Errors, which name `what`: corruption, not_found (another magic), unimplemented (layout).
Result<FieldReader> open_page(std::span<const uint8_t> page, uint64_t magic, const char* what);

}  // namespace deepinfer
