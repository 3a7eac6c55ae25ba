// SPDX-License-Identifier: MIT
// Page-aligned memory for device I/O, recycled: fresh pages cost more than the copy that fills them. Thread: values;
// the store of free buffers behind them may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace deepinfer {

class PageBuffer {
 public:
  PageBuffer() = default;
  // Contents are whatever they were.
  static PageBuffer of(int64_t num_bytes);
  PageBuffer(PageBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PageBuffer();

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }  // a multiple of the page, at least what was asked for
  bool empty() const { return size_ == 0; }
  std::span<uint8_t> bytes(int64_t offset, int64_t n) { return {data_ + offset, static_cast<size_t>(n)}; }
  std::span<const uint8_t> bytes(int64_t offset, int64_t n) const { return {data_ + offset, static_cast<size_t>(n)}; }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

// Bytes kept for reuse at most; beyond, buffers are freed.
inline constexpr int64_t kFreeBufferBytesMax = int64_t{256} << 20;

}  // namespace deepinfer
