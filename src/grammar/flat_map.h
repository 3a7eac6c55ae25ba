// SPDX-License-Identifier: MIT
// A map from 64-bit keys to 32-bit values in one array with linear probing: one cache line for most look-ups, no
// allocation per entry. The key ~0 is reserved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace deepinfer {

// Every input bit reaches the low bits (the finaliser of MurmurHash3).
inline uint64_t mixed_bits(uint64_t h) {
  h = (h ^ h >> 33) * 0xFF51AFD7ED558CCDull;
  h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53ull;
  return h ^ h >> 33;
}

class FlatMap {
 public:
  static constexpr uint32_t kAbsent = ~uint32_t{0};

  // The value, or kAbsent.
  uint32_t find(uint64_t key) const {
    if (places_.empty()) return kAbsent;
    for (size_t at = place(key);; at = (at + 1) & (places_.size() - 1)) {
      if (places_[at].key == key) return places_[at].value;
      if (places_[at].key == kFree) return kAbsent;
    }
  }
  // Precondition: the key is absent.
  void insert(uint64_t key, uint32_t value) {
    if (2 * (size_ + 1) > places_.size()) grow();
    ++size_;
    put(key, value);
  }
  void clear() {
    places_.clear();
    size_ = 0;
  }
  size_t size() const { return size_; }
  size_t num_bytes() const { return places_.size() * sizeof(Place); }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Place {
    uint64_t key;
    uint32_t value;
  };
  size_t place(uint64_t key) const { return mixed_bits(key) & (places_.size() - 1); }
  void put(uint64_t key, uint32_t value) {
    size_t at = place(key);
    while (places_[at].key != kFree) at = (at + 1) & (places_.size() - 1);
    places_[at] = {key, value};
  }
  void grow() {
    std::vector<Place> old(places_.empty() ? 64 : places_.size() * 2, Place{kFree, 0});
    old.swap(places_);
    for (const Place& p : old)
      if (p.key != kFree) put(p.key, p.value);
  }

  std::vector<Place> places_;
  size_t size_ = 0;
};

// A map that forgets. A full table becomes the older of two, and a larger one begins empty: nothing is moved at once,
// so no call takes long. What is found in the older one moves over; the rest goes with it. The key ~0 is reserved.
class FlatCache {
 public:
  explicit FlatCache(size_t places_max) : places_max_(places_max) {}  // of one table; a power of two
  // The value, or FlatMap::kAbsent.
  uint32_t find(uint64_t key) {
    if (const Place* place = newer_.find(key)) return place->value;
    const Place* place = older_.find(key);
    if (place == nullptr) return FlatMap::kAbsent;
    const uint32_t value = place->value;
    insert(key, value);
    return value;
  }
  // Precondition: the key is absent.
  void insert(uint64_t key, uint32_t value) {
    if (2 * (newer_.size + 1) > newer_.num_places) {
      older_ = std::exchange(newer_, {});
      newer_ = Table(std::min(places_max_, std::max<size_t>(64, 2 * older_.num_places)));
    }
    newer_.insert(key, value);
  }
  size_t num_bytes() const { return (newer_.num_places + older_.num_places) * sizeof(Place); }

 private:
  struct Place {
    uint64_t not_key;  // 0: free
    uint32_t value;
  };
  struct Free {
    void operator()(Place* places) const { std::free(places); }
  };
  struct Table {
    Table() = default;
    explicit Table(size_t n) : places(static_cast<Place*>(std::calloc(n, sizeof(Place)))), num_places(n) {
      CHECK(places != nullptr);
    }
    size_t place(uint64_t key) const {
      size_t at = mixed_bits(key) & (num_places - 1);
      while (places[at].not_key != 0 && places[at].not_key != ~key) at = (at + 1) & (num_places - 1);
      return at;
    }
    const Place* find(uint64_t key) const {
      if (num_places == 0) return nullptr;
      const Place& found = places[place(key)];
      return found.not_key == 0 ? nullptr : &found;
    }
    void insert(uint64_t key, uint32_t value) {
      places[place(key)] = {~key, value};
      ++size;
    }
    std::unique_ptr<Place[], Free> places;  // pages of large tables come zeroed as they are touched
    size_t num_places = 0, size = 0;
  };

  const size_t places_max_;
  Table newer_, older_;
};

// Ids by the hash of what they stand for; the owner compares. Several ids may share a hash.
class HashIndex {
 public:
  // The first id for which same(id) holds, or FlatMap::kAbsent.
  template <typename Same>
  uint32_t find(uint64_t hash, Same&& same) const {
    if (places_.empty()) return FlatMap::kAbsent;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t at = place(hash);; at = (at + 1) & (places_.size() - 1)) {
      if (places_[at].id == FlatMap::kAbsent) return FlatMap::kAbsent;
      if (places_[at].tag == tag && same(places_[at].id)) return places_[at].id;
    }
  }
  void insert(uint64_t hash, uint32_t id) {
    if (2 * (size_ + 1) > places_.size()) grow();
    ++size_;
    put(hash, id);
  }
  size_t num_bytes() const { return places_.size() * sizeof(Place); }

 private:
  struct Place {
    uint32_t tag, low, id;
  };
  size_t place(uint64_t hash) const { return mixed_bits(hash) & (places_.size() - 1); }
  void put(uint64_t hash, uint32_t id) {
    size_t at = place(hash);
    while (places_[at].id != FlatMap::kAbsent) at = (at + 1) & (places_.size() - 1);
    places_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(hash), id};
  }
  void grow() {
    std::vector<Place> old(places_.empty() ? 64 : places_.size() * 2, Place{0, 0, FlatMap::kAbsent});
    old.swap(places_);
    for (const Place& p : old)
      if (p.id != FlatMap::kAbsent) put(uint64_t{p.tag} << 32 | p.low, p.id);
  }

  std::vector<Place> places_;
  size_t size_ = 0;
};

}  // namespace deepinfer
