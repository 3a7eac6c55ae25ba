// SPDX-License-Identifier: MIT
// Where the global KV of a sequence stands: its blocks in order, each a fixed run of kBlockTokens tokens. Block i holds
// the compressed KV and index keys of positions [i * kBlockTokens, (i + 1) * kBlockTokens) of every kv-source layer.
// The table borrows nothing and owns no block: who may free a block is the pool's business.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/range.h"

namespace deepinfer {

inline constexpr int64_t kBlockTokens = 128;

class BlockTable {
 public:
  BlockTable() = default;
  explicit BlockTable(std::vector<BlockId> blocks) : blocks_(std::move(blocks)) {}

  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t capacity_tokens() const { return num_blocks() * kBlockTokens; }
  const std::vector<BlockId>& blocks() const { return blocks_; }
  BlockId block_of(int64_t position) const {
    CHECK(position >= 0 && position < capacity_tokens());
    return blocks_[static_cast<size_t>(position / kBlockTokens)];
  }
  void reserve(int64_t num_blocks) { blocks_.reserve(static_cast<size_t>(num_blocks)); }
  void push_back(BlockId block) { blocks_.push_back(block); }
  void truncate(int64_t num_blocks) {
    CHECK(num_blocks >= 0 && num_blocks <= this->num_blocks());
    blocks_.resize(static_cast<size_t>(num_blocks));
  }
  void clear() { blocks_.clear(); }

  static int64_t blocks_for(int64_t num_tokens) { return ceil_div(num_tokens, kBlockTokens); }

 private:
  std::vector<BlockId> blocks_;
};

}  // namespace deepinfer
