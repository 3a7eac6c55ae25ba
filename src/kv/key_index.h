// SPDX-License-Identifier: MIT
// Block keys to blocks, for at most as many keys as there are blocks: open addressing in one array that never grows, so
// that no step allocates. Thread: its owner's.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "store/block_key.h"

namespace deepinfer {

class KeyIndex {
 public:
  explicit KeyIndex(int64_t num_keys_max)
      : places_(std::bit_ceil(static_cast<uint64_t>(2 * num_keys_max + 2))), mask_(places_.size() - 1) {}

  int64_t size() const { return num_keys_; }
  std::optional<BlockId> find(const BlockKey& key) const {
    const Place& place = places_[place_of(key)];
    if (!place.is_used) return std::nullopt;
    return place.block;
  }
  // Precondition: absent, and room.
  void insert(const BlockKey& key, BlockId block) {
    Place& place = places_[place_of(key)];
    CHECK(!place.is_used && 2 * static_cast<uint64_t>(++num_keys_) <= places_.size());
    place = {key, block, true};
  }
  // Precondition: present. What stands behind it in its run moves up, so a search never meets a hole.
  void erase(const BlockKey& key) {
    size_t hole = place_of(key);
    CHECK(places_[hole].is_used);
    --num_keys_;
    for (size_t i = (hole + 1) & mask_; places_[i].is_used; i = (i + 1) & mask_) {
      const size_t home = BlockKeyHash{}(places_[i].key) & mask_;
      if (((i - home) & mask_) < ((i - hole) & mask_)) continue;  // it would come before its home
      places_[hole] = places_[i];
      hole = i;
    }
    places_[hole].is_used = false;
  }

 private:
  struct Place {
    BlockKey key;
    BlockId block{};
    bool is_used = false;
  };
  // Where the key is, or would go.
  size_t place_of(const BlockKey& key) const {
    size_t i = BlockKeyHash{}(key)&mask_;
    while (places_[i].is_used && places_[i].key != key) i = (i + 1) & mask_;
    return i;
  }

  std::vector<Place> places_;
  size_t mask_;
  int64_t num_keys_ = 0;
};

}  // namespace deepinfer
