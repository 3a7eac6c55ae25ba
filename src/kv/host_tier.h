// SPDX-License-Identifier: MIT
// The host-memory tier: which keys have their block bytes in which host slot. It decides and remembers; the engine
// copies. Least recently used slots are reused; slots with a copy in flight are not. Thread: plan.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kv/block_pool.h"
#include "store/block_key.h"

namespace deepinfer {

enum class HostSlot : uint32_t {};

class HostTier {
 public:
  explicit HostTier(int64_t num_slots);
  int64_t num_slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t num_used() const { return static_cast<int64_t>(index_.size()); }

  struct Found {
    HostSlot slot{};
    bool behind_fast_replay = false;
  };
  // Looking a key up makes it the most recently used.
  std::optional<Found> find(const BlockKey& key);
  bool contains(const BlockKey& key) const { return index_.contains(key); }

  // A slot for the bytes of `key`, dropping the least recently used one; nullopt when the key is here already (and not
  // merely behind a fast replay, where these bytes are exact) or every slot is busy. The slot is busy until copied()
  // says its bytes are in place.
  std::optional<HostSlot> admit(const BlockKey& key, bool behind_fast_replay);
  // A load from the slot is in flight until copied().
  void begin_load(HostSlot slot);
  void copied(HostSlot slot);
  bool forget(const BlockKey& key);  // false when absent or busy

  void check_invariants() const;

 private:
  struct State {
    std::optional<BlockKey> key;
    bool behind_fast_replay = false;
    int64_t num_copies = 0;  // in flight
    std::list<HostSlot>::iterator lru_place;
  };
  std::vector<State> slots_;
  std::list<HostSlot> lru_;  // all slots; front = next to go
  std::unordered_map<BlockKey, HostSlot, BlockKeyHash> index_;
};

}  // namespace deepinfer
