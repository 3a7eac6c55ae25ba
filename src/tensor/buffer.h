// SPDX-License-Identifier: MIT
// Owned, zeroed memory aligned to 64 bytes (one cache line, one AVX-512 register): of the host (memory.h), or of a
// Memory. Elements can be read and written here only where the memory is the host's. Move-only. Memory that cannot be
// had leaves the buffer without data: whoever allocates from a device asks Device::status() afterwards.
#pragma once

#include <cstdint>
#include <cstring>  // many users of buffers copy bytes
#include <memory>
#include <utility>

#include "base/check.h"
#include "tensor/device_memory.h"
#include "tensor/memory.h"

namespace deepinfer {

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t num_elements) : num_elements_(num_elements) {
    CHECK(num_elements >= 0);
    if (num_elements == 0) return;
    const size_t bytes = static_cast<size_t>(num_elements) * sizeof(T);
    data_ = {static_cast<T*>(allocate_zeroed(bytes)), Deleter{bytes}};
  }
  Buffer(Memory& memory, int64_t num_elements)
      : num_elements_(num_elements), data_(nullptr, Deleter{static_cast<size_t>(size_bytes()), &memory}) {
    CHECK(num_elements >= 0);
    if (num_elements > 0) data_.reset(static_cast<T*>(memory.allocate(size_bytes())));
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return num_elements_; }
  int64_t size_bytes() const { return num_elements_ * static_cast<int64_t>(sizeof(T)); }
  T& operator[](int64_t i) {
    DCHECK(i >= 0 && i < num_elements_);
    return data_.get()[i];
  }
  const T& operator[](int64_t i) const {
    DCHECK(i >= 0 && i < num_elements_);
    return data_.get()[i];
  }
  T* begin() { return data(); }
  T* end() { return data() + num_elements_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + num_elements_; }

 private:
  struct Deleter {
    size_t bytes = 0;
    Memory* memory = nullptr;  // null: the host's
    void operator()(T* p) const {
      if (memory) memory->release(p, static_cast<int64_t>(bytes));
      else free_memory(p, bytes);
    }
  };
  int64_t num_elements_ = 0;
  std::unique_ptr<T, Deleter> data_;
};

}  // namespace deepinfer
