// SPDX-License-Identifier: MIT
#include "kv/host_tier.h"

#include "base/check.h"

namespace deepinfer {

HostTier::HostTier(int64_t num_slots) : slots_(static_cast<size_t>(num_slots)) {
  for (int64_t i = 0; i < num_slots; ++i)
    slots_[static_cast<size_t>(i)].lru_place = lru_.insert(lru_.end(), static_cast<HostSlot>(i));
}

std::optional<HostTier::Found> HostTier::find(const BlockKey& key) {
  const auto at = index_.find(key);
  if (at == index_.end()) return std::nullopt;
  State& s = slots_[static_cast<size_t>(at->second)];
  lru_.splice(lru_.end(), lru_, s.lru_place);
  return Found{at->second, s.behind_fast_replay};
}

std::optional<HostSlot> HostTier::admit(const BlockKey& key, bool behind_fast_replay) {
  if (const auto at = index_.find(key); at != index_.end()) {
    State& held = slots_[static_cast<size_t>(at->second)];
    if (behind_fast_replay || !held.behind_fast_replay || held.num_copies > 0) return std::nullopt;
    held.behind_fast_replay = false;
    held.num_copies = 1;
    lru_.splice(lru_.end(), lru_, held.lru_place);
    return at->second;
  }
  for (const HostSlot slot : lru_) {
    State& s = slots_[static_cast<size_t>(slot)];
    if (s.num_copies > 0) continue;
    if (s.key) index_.erase(*s.key);
    s.key = key;
    s.behind_fast_replay = behind_fast_replay;
    s.num_copies = 1;
    index_.emplace(key, slot);
    lru_.splice(lru_.end(), lru_, s.lru_place);
    return slot;
  }
  return std::nullopt;
}

void HostTier::begin_load(HostSlot slot) {
  State& s = slots_[static_cast<size_t>(slot)];
  CHECK(s.key);
  ++s.num_copies;
}

void HostTier::copied(HostSlot slot) {
  State& s = slots_[static_cast<size_t>(slot)];
  CHECK(s.num_copies > 0);
  --s.num_copies;
}

bool HostTier::forget(const BlockKey& key) {
  const auto at = index_.find(key);
  if (at == index_.end()) return false;
  State& s = slots_[static_cast<size_t>(at->second)];
  if (s.num_copies > 0) return false;
  s.key.reset();
  lru_.splice(lru_.begin(), lru_, s.lru_place);
  index_.erase(at);
  return true;
}

void HostTier::check_invariants() const {
  CHECK(lru_.size() == slots_.size());
  size_t num_keyed = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const State& s = slots_[i];
    CHECK(s.num_copies >= 0);
    if (!s.key) continue;
    ++num_keyed;
    const auto at = index_.find(*s.key);
    CHECK(at != index_.end() && static_cast<size_t>(at->second) == i);
  }
  CHECK(num_keyed == index_.size());
}

}  // namespace deepinfer
