// SPDX-License-Identifier: MIT
// Working memory of ops, the host's or a device's: a stack of 64-byte aligned pieces that are given back together when
// their Frame ends. It grows to the largest step it has seen and then allocates nothing. Contents are not cleared.
// Thread: the one that launches ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/range.h"
#include "tensor/buffer.h"

namespace deepinfer {

class Scratch {
 public:
  Scratch() = default;                                    // of the host
  explicit Scratch(Memory& memory) : memory_(&memory) {}  // of a device: pieces are reused in stream order
  // Everything taken while a Frame lives returns to the stack when it ends. Frames nest.
  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Frame() {
      scratch_.block_ = block_;
      scratch_.used_ = used_;
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    size_t block_;
    int64_t used_;
  };

  template <typename T>
  T* take(int64_t num_elements) {
    CHECK(num_elements >= 0);
    return reinterpret_cast<T*>(take_bytes(round_up<int64_t>(num_elements * static_cast<int64_t>(sizeof(T)), 64)));
  }

 private:
  uint8_t* take_bytes(int64_t bytes) {
    while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].size()) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) {
      const int64_t previous = blocks_.empty() ? int64_t{1} << 19 : blocks_.back().size();
      const int64_t size = bytes > 2 * previous ? bytes : 2 * previous;
      blocks_.push_back(memory_ ? Buffer<uint8_t>(*memory_, size) : Buffer<uint8_t>(size));
      CHECK(blocks_.back().data() != nullptr);
      used_ = 0;
    }
    uint8_t* piece = blocks_[block_].data() + used_;
    used_ += bytes;
    return piece;
  }

  Memory* memory_ = nullptr;
  std::vector<Buffer<uint8_t>> blocks_;
  size_t block_ = 0;  // the block in use, and bytes used of it
  int64_t used_ = 0;
};

}  // namespace deepinfer
