// SPDX-License-Identifier: MIT
// A fuzz target `foo` is a file foo_fuzz.cc that defines `int fuzz_foo(const uint8_t*, size_t)` in namespace deepinfer.
// Seeds live in testdata/fuzz/<foo>/. A finding is a crash, a sanitizer report, or a failed CHECK of a property.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer {

struct FuzzTarget {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
};

}  // namespace deepinfer
