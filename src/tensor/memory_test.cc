// SPDX-License-Identifier: MIT
#include "tensor/memory.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace deepinfer {

TEST(Memory, IsZeroedAndAlignedAtEverySize) {
  for (const size_t bytes :
       {size_t{1}, size_t{4096}, kLargeMemoryBytes - 1, kLargeMemoryBytes, 3 * kLargeMemoryBytes + 7}) {
    auto* memory = static_cast<uint8_t*>(allocate_zeroed(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % (bytes >= kLargeMemoryBytes ? size_t{2} << 20 : 64), 0U);
    for (const size_t at : {size_t{0}, bytes / 2, bytes - 1}) EXPECT_EQ(memory[at], 0);
    for (const size_t at : {size_t{0}, bytes / 2, bytes - 1}) memory[at] = 1;
    free_memory(memory, bytes);
  }
}

TEST(Memory, ThereIsANode) { EXPECT_GE(num_memory_nodes(), 1); }

}  // namespace deepinfer
