// SPDX-License-Identifier: MIT
// Allowed next tokens as bits: one row of 32-bit words per logits row, bit (id % 32) of word (id / 32) set = allowed.
// Declared here because grammar makes them and the sampler reads them, and neither may know the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/range.h"

namespace deepinfer {

class TokenMasks {
 public:
  TokenMasks() = default;
  TokenMasks(int64_t num_rows, int64_t vocab_size)
      : vocab_size_(vocab_size),
        words_per_row_(ceil_div<int64_t>(vocab_size, 32)),
        words_(static_cast<size_t>(num_rows * words_per_row_), 0) {}
  int64_t num_rows() const { return words_per_row_ == 0 ? 0 : static_cast<int64_t>(words_.size()) / words_per_row_; }
  int64_t vocab_size() const { return vocab_size_; }
  std::span<uint32_t> row(int64_t i) {
    return {words_.data() + i * words_per_row_, static_cast<size_t>(words_per_row_)};
  }
  std::span<const uint32_t> row(int64_t i) const {
    return {words_.data() + i * words_per_row_, static_cast<size_t>(words_per_row_)};
  }
  void allow_all(int64_t i) { std::ranges::fill(row(i), ~uint32_t{0}); }

 private:
  int64_t vocab_size_ = 0, words_per_row_ = 0;
  std::vector<uint32_t> words_;
};

inline bool is_allowed(std::span<const uint32_t> row, TokenId id) {
  return (row[static_cast<size_t>(id) / 32] >> (id % 32)) & 1u;
}
inline void allow(std::span<uint32_t> row, TokenId id) { row[static_cast<size_t>(id) / 32] |= 1u << (id % 32); }
inline void forbid(std::span<uint32_t> row, TokenId id) { row[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32)); }

}  // namespace deepinfer
