// SPDX-License-Identifier: MIT
// Invariants of our own code. Bytes from outside never reach a CHECK: they get a Status.
#pragma once

namespace deepinfer {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define CHECK(condition)                                         \
  do {                                                           \
    if (!(condition)) [[unlikely]]                               \
      ::deepinfer::check_failed(#condition, __FILE__, __LINE__); \
  } while (0)

#ifdef NDEBUG
#define DCHECK(condition) \
  do {                    \
  } while (0)
#else
#define DCHECK(condition) CHECK(condition)
#endif
