// SPDX-License-Identifier: MIT
// Numbers nobody can guess, from the operating system: seeds of requests that bring none, ids that clients see.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace deepinfer {

uint64_t entropy_u64();
std::string entropy_hex(size_t num_bytes);  // two lower-case digits a byte; at most 256 bytes

}  // namespace deepinfer
