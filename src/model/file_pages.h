// SPDX-License-Identifier: MIT
// What a file map is asked for: pages read now, or given back. Contents never change, so none of this changes a result.
// Any thread.
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

// Maps and reads the pages that the bytes touch; returns when they are in memory.
void read_pages(std::span<const uint8_t> bytes);

// The pages that hold nothing else may be taken from memory.
void give_back_pages(std::span<const uint8_t> bytes);

}  // namespace deepinfer
