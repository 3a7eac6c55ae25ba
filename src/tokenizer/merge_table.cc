// SPDX-License-Identifier: MIT
#include "tokenizer/merge_table.h"

#include <bit>

namespace deepinfer {

MergeTable::MergeTable(std::vector<Merge> merges) : merges_(std::move(merges)) {
  const size_t num_slots = std::bit_ceil(2 * merges_.size() + 2);
  const size_t num_words = std::bit_ceil(merges_.size() / 4 + 2);
  slots_.assign(num_slots, kFree);
  filter_.assign(num_words, 0);
  slot_shift_ = 64 - std::countr_zero(num_slots);
  filter_shift_ = 64 - std::countr_zero(num_words);
  slot_mask_ = num_slots - 1;
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    const Symbol own = static_cast<Symbol>(256 + rank);
    is_ordered_ = is_ordered_ && merge.result == own && merge.left < own && merge.right < own;
    const uint64_t pair = static_cast<uint64_t>(merge.left) << 21 | merge.right;
    const uint64_t hash = pair * kMultiplier;
    uint64_t slot = hash >> slot_shift_;
    while (slots_[slot] != kFree) slot = (slot + 1) & slot_mask_;
    slots_[slot] = pair << 21 | rank;
    filter_[hash >> filter_shift_] |= filter_bits(hash);
  }
}

}  // namespace deepinfer
