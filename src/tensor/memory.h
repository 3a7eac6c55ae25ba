// SPDX-License-Identifier: MIT
// Host memory for buffers. Large pieces stand on 2 MiB boundaries and ask for huge pages (where the system allows them
// on request or always), and on a machine of several memory nodes their pages alternate between the nodes, so that
// threads of all sockets share the bandwidth of all of them.
#pragma once

#include <cstddef>

namespace deepinfer {

inline constexpr size_t kLargeMemoryBytes = size_t{4} << 20;

// Zeroed, aligned to 64 bytes. Aborts when there is none, as operator new does.
void* allocate_zeroed(size_t bytes);
void free_memory(void* memory, size_t bytes);

int num_memory_nodes();  // 1 where the system does not say

}  // namespace deepinfer
