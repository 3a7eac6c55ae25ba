// SPDX-License-Identifier: MIT
#include "store/page_buffer.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/range.h"

namespace deepinfer {
namespace {

constexpr int64_t kPage = 4096;

// Sizes are rounded to eighths of a power of two, so that buffers of similar rows serve each other.
int64_t rounded(int64_t num_bytes) {
  const int64_t step =
      std::max<int64_t>(kPage, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_bytes))) / 8);
  return round_up(num_bytes, round_up(step, kPage));
}

class FreeBuffers {
 public:
  uint8_t* take(int64_t size) {
    const std::lock_guard lock(mutex_);
    const auto at = free_.find(size);
    if (at == free_.end() || at->second.empty()) return nullptr;
    uint8_t* data = at->second.back();
    at->second.pop_back();
    num_bytes_ -= size;
    return data;
  }
  void give(uint8_t* data, int64_t size) {
    {
      const std::lock_guard lock(mutex_);
      if (num_bytes_ + size <= kFreeBufferBytesMax) {
        free_[size].push_back(data);
        num_bytes_ += size;
        return;
      }
    }
    std::free(data);
  }

 private:
  std::mutex mutex_;  // guards both
  std::map<int64_t, std::vector<uint8_t*>> free_;
  int64_t num_bytes_ = 0;
};

FreeBuffers& free_buffers() {  // never destroyed: buffers may outlive the end of main
  static FreeBuffers& instance = *new FreeBuffers;
  return instance;
}

}  // namespace

PageBuffer PageBuffer::of(int64_t num_bytes) {
  PageBuffer buffer;
  if (num_bytes <= 0) return buffer;
  buffer.size_ = rounded(num_bytes);
  buffer.data_ = free_buffers().take(buffer.size_);
  if (!buffer.data_) buffer.data_ = static_cast<uint8_t*>(std::aligned_alloc(kPage, static_cast<size_t>(buffer.size_)));
  CHECK(buffer.data_);
  return buffer;
}

PageBuffer::~PageBuffer() {
  if (data_) free_buffers().give(data_, size_);
}

}  // namespace deepinfer
