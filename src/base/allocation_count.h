// SPDX-License-Identifier: MIT
// For tests that state how often a loop may allocate: the program that includes this counts its allocations. Include it
// in exactly one file of a test program: it defines the program's operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace deepinfer {

inline std::atomic<size_t> num_allocations{0};  // since the program began, of all threads

}  // namespace deepinfer

// Every form, so that no memory is taken by one allocator and returned to another; not inlined, so that the compiler
// does not see a free() of what new returned.
[[gnu::noinline]] void* operator new(size_t bytes) {
  deepinfer::num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  deepinfer::num_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t& tag) noexcept { return operator new(bytes, tag); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete[](void* memory, size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
