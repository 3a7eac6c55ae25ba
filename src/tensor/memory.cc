// SPDX-License-Identifier: MIT
#include "tensor/memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>

namespace deepinfer {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// The highest node number of "0" or "0-3" or "0,2", plus one.
int read_num_nodes() {
  std::FILE* file = std::fopen("/sys/devices/system/node/online", "re");
  if (!file) return 1;
  char text[256] = {};
  const size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  int highest = 0, number = 0;
  for (size_t i = 0; i < size; ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    number = digit && number < 1000 ? 10 * number + (text[i] - '0') : digit ? number : 0;
    highest = number > highest ? number : highest;
  }
  return highest + 1;
}

// Advice only: a refusal (an old kernel, a container's filter) changes nothing but speed.
void advise(void* memory, size_t bytes) {
  madvise(memory, bytes, MADV_HUGEPAGE);
  const int nodes = num_memory_nodes();
  if (nodes < 2 || nodes > 64) return;
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE
  const uint64_t mask = nodes == 64 ? ~uint64_t{0} : (uint64_t{1} << nodes) - 1;
  syscall(SYS_mbind, memory, bytes, kInterleave, &mask, 65, 0);
}

}  // namespace

int num_memory_nodes() {
  static const int nodes = read_num_nodes();
  return nodes;
}

void* allocate_zeroed(size_t bytes) {
  const bool large = bytes >= kLargeMemoryBytes;
  void* memory = ::operator new (bytes, std::align_val_t{large ? kHugePageBytes : 64});
  if (large) advise(memory, bytes / kHugePageBytes * kHugePageBytes);
  std::memset(memory, 0, bytes);
  return memory;
}

void free_memory(void* memory, size_t bytes) {
  ::operator delete (memory, std::align_val_t{bytes >= kLargeMemoryBytes ? kHugePageBytes : 64});
}

}  // namespace deepinfer
