// SPDX-License-Identifier: MIT
// The merges of a BPE model over symbols. A symbol is a byte (0-255) or the result of a merge: 256 + the rank of the
// first merge that makes it. Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

using Symbol = uint32_t;
inline constexpr Symbol kNoSymbol = 0xFFFFFFFF;

struct Merge {
  Symbol left, right, result;
};

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  static constexpr Symbol kSymbolsMax = 1u << 21;  // three of them and a spare bit fit an entry

  // In rank order. Preconditions: pairs are distinct, symbols below kSymbolsMax.
  explicit MergeTable(std::vector<Merge> merges);

  // Rank of the merge of this pair, or kNoRank.
  uint32_t find(Symbol left, Symbol right) const {
    const uint64_t pair = static_cast<uint64_t>(left) << 21 | right;
    const uint64_t hash = pair * kMultiplier;
    const uint64_t bits = filter_bits(hash);
    if ((filter_[hash >> filter_shift_] & bits) != bits) return kNoRank;
    for (uint64_t slot = hash >> slot_shift_;; slot = (slot + 1) & slot_mask_) {
      const uint64_t entry = slots_[slot];
      if (entry >> 21 == pair) return static_cast<uint32_t>(entry & (kSymbolsMax - 1));
      if (entry == kFree) return kNoRank;
    }
  }
  std::span<const Merge> merges() const { return merges_; }

  // True when every merge makes a symbol of its own out of symbols made by earlier merges, as training writes them.
  // Then "lowest rank first" is "rank by rank", which the fast encoder relies on.
  bool is_ordered() const { return is_ordered_; }

 private:
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  static constexpr uint64_t kFree = ~uint64_t{0};

  // Two bits of one word, so that asking costs one load. About 16 bits a merge let one absent pair in seventy through.
  static uint64_t filter_bits(uint64_t hash) {
    return uint64_t{1} << (hash >> 34 & 63) | uint64_t{1} << (hash >> 40 & 63);
  }

  std::vector<Merge> merges_;
  std::vector<uint64_t> slots_;  // left, right, rank: 21 bits each; open addressing, half full at most
  std::vector<uint64_t>
      filter_;  // a bit per hash, small enough for the second cache level: most pairs asked for are absent
  int slot_shift_ = 0, filter_shift_ = 0;
  uint64_t slot_mask_ = 0;
  bool is_ordered_ = true;
};

}  // namespace deepinfer
