// SPDX-License-Identifier: MIT
#include "model/file_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int kPageOut = 21,
              kPopulateRead = 22;  // MADV_PAGEOUT (Linux 5.4), MADV_POPULATE_READ (5.14): newer than some headers

uintptr_t page_bytes() {
  static const uintptr_t bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

// A system that cannot do so in one call is asked page by page.
void read_pages(std::span<const uint8_t> bytes) {
  const uintptr_t page = page_bytes(), begin = reinterpret_cast<uintptr_t>(bytes.data()) & ~(page - 1),
                  end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  void* from = reinterpret_cast<void*>(begin);
  ::madvise(from, end - begin, MADV_WILLNEED);
  if (::madvise(from, end - begin, kPopulateRead) == 0) return;
  for (uintptr_t at = begin; at < end; at += page) {
    const volatile uint8_t* touched = reinterpret_cast<const uint8_t*>(std::max(at, end - bytes.size()));
    (void)*touched;
  }
}

void give_back_pages(std::span<const uint8_t> bytes) {
  const uintptr_t page = page_bytes(), begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) & ~(page - 1),
                  end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) & ~(page - 1);
  if (begin >= end) return;
  ::madvise(reinterpret_cast<void*>(begin), end - begin, kPageOut);
}

}  // namespace deepinfer
