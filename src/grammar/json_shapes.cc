// SPDX-License-Identifier: MIT
#include "grammar/json_shapes.h"

#include <algorithm>
#include <utility>

namespace deepinfer {
namespace {

size_t mixed(size_t h, uint64_t v) { return (h ^ v) * 0x9E3779B97F4A7C15ull + (h >> 29); }

bool is_seen(const JsonStates::Progress& at, size_t member) {
  return member / 64 < at.seen.size() && (at.seen[member / 64] >> (member % 64) & 1) != 0;
}

void set_seen(JsonStates::Progress& at, size_t member) {
  if (at.seen.size() <= member / 64) at.seen.resize(member / 64 + 1);
  at.seen[member / 64] |= uint64_t{1} << (member % 64);
}

bool has_come(const ObjectShape& shape, const JsonStates::Progress& at, size_t member) {
  return shape.any_order ? is_seen(at, member) : shape.members[member].position < at.position;
}

bool counts_members(const ObjectShape& shape) { return shape.min > 0 || shape.max != ~0u; }

uint32_t num_missing(const ObjectShape& shape, const JsonStates::Progress& at) {
  uint32_t missing = (shape.obligations & ~at.flags) != 0 ? 1 : 0;
  for (size_t i = 0; i < shape.members.size(); ++i)
    missing += shape.members[i].is_required && !has_come(shape, at, i) ? 1 : 0;
  return missing;
}

// Whether `room` more members leave place for what is missing.
bool leaves_room(const ObjectShape& shape, const JsonStates::Progress& after) {
  return shape.max == ~0u || (after.count <= shape.max && shape.max - after.count >= num_missing(shape, after));
}

}  // namespace

uint32_t JsonStates::intern(const Progress& progress) {
  size_t h = mixed(mixed(mixed(progress.shape, progress.count), progress.flags), progress.position);
  for (const uint64_t word : progress.seen) h = mixed(h, word);
  const uint32_t known = progress_ids_.find(h, [&](uint32_t id) { return progress_[id] == progress; });
  if (known != FlatMap::kAbsent) return known;
  progress_.push_back(progress);
  progress_ids_.insert(h, static_cast<uint32_t>(progress_.size() - 1));
  return static_cast<uint32_t>(progress_.size() - 1);
}

uint32_t JsonStates::intern(const Key& key) {
  const size_t h =
      mixed(mixed(mixed(mixed(mixed(key.begin, key.end), key.depth), static_cast<uint64_t>(key.other + 1)), key.keys),
            key.phase);
  const uint32_t known = key_ids_.find(h, [&](uint32_t id) { return keys_[id] == key; });
  if (known != FlatMap::kAbsent) return known;
  keys_.push_back(key);
  key_ids_.insert(h, static_cast<uint32_t>(keys_.size() - 1));
  return static_cast<uint32_t>(keys_.size() - 1);
}

bool may_close(const ObjectShape& shape, const JsonStates::Progress& at) {
  return at.count >= shape.min && num_missing(shape, at) == 0;
}

bool may_take_member(const ObjectShape& shape, const JsonStates::Progress& at, size_t member) {
  const ObjectShape::Member& m = shape.members[member];
  if (!m.is_possible || has_come(shape, at, member)) return false;
  uint32_t num_later = 0;
  if (!shape.any_order) {
    for (const ObjectShape::Member& other : shape.members) {
      if (other.is_required && other.position >= at.position && other.position < m.position) return false;
      num_later += other.is_possible && other.position > m.position ? 1 : 0;
    }
  }
  const JsonStates::Progress after = after_member(shape, at, member);
  if (!shape.any_order && shape.others.empty() && uint64_t{after.count} + num_later < shape.min) return false;
  return leaves_room(shape, after);
}

bool may_take_other(const ObjectShape& shape, const JsonStates::Progress& at, size_t other) {
  const JsonStates::Progress after = after_other(shape, at, other);
  if (!shape.any_order)
    for (size_t i = 0; i < shape.members.size(); ++i)
      if (shape.members[i].is_required && !has_come(shape, at, i)) return false;
  return leaves_room(shape, after);
}

bool may_take_more(const ObjectShape& shape, const JsonStates::Progress& at) {
  if (shape.max != ~0u && at.count >= shape.max) return false;
  for (size_t i = 0; i < shape.others.size(); ++i)
    if (may_take_other(shape, at, i)) return true;
  for (size_t i = 0; i < shape.members.size(); ++i)
    if (may_take_member(shape, at, i)) return true;
  return false;
}

JsonStates::Progress after_member(const ObjectShape& shape, JsonStates::Progress at, size_t member) {
  if (shape.any_order) set_seen(at, member);
  else at.position = shape.members[member].position + 1;
  if (counts_members(shape) && (shape.max != ~0u || at.count < shape.min)) ++at.count;
  return at;
}

JsonStates::Progress after_other(const ObjectShape& shape, JsonStates::Progress at, size_t other) {
  if (!shape.any_order) at.position = ~0u;
  at.flags |= shape.others[other].obligations;
  if (counts_members(shape) && (shape.max != ~0u || at.count < shape.min)) ++at.count;
  return at;
}

// The counts of an array are the first words of `seen`; the choices taken follow when items must differ.
namespace {

uint64_t count_of(const JsonStates::Progress& at, size_t i) { return i < at.seen.size() ? at.seen[i] : 0; }

bool counts_reached(const ArrayShape& shape, const JsonStates::Progress& at, uint64_t room) {
  for (size_t i = 0; i < shape.counts.size(); ++i)
    if (count_of(at, i) + room < shape.counts[i].min) return false;
  return true;
}

}  // namespace

const std::vector<ArrayShape::Choice>& next_choices(const ArrayShape& shape, const JsonStates::Progress& at) {
  return shape.places[std::min<size_t>(at.count, shape.places.size() - 1)];
}

bool may_close(const ArrayShape& shape, const JsonStates::Progress& at) {
  return at.count >= shape.min && counts_reached(shape, at, 0);
}

bool may_take(const ArrayShape& shape, const JsonStates::Progress& at, size_t choice) {
  const ArrayShape::Choice& c = next_choices(shape, at)[choice];
  if (!c.is_possible || (shape.max != ~0u && at.count >= shape.max)) return false;
  if (shape.is_unique && is_seen(at, choice)) return false;
  for (size_t i = 0; i < shape.counts.size(); ++i)
    if ((c.counted >> i & 1) != 0 && count_of(at, i) >= shape.counts[i].max) return false;
  if (shape.max == ~0u) return true;
  return counts_reached(shape, after_item(shape, at, choice), shape.max - at.count - 1);
}

bool may_take_more(const ArrayShape& shape, const JsonStates::Progress& at) {
  for (size_t i = 0; i < next_choices(shape, at).size(); ++i)
    if (may_take(shape, at, i)) return true;
  return false;
}

JsonStates::Progress after_item(const ArrayShape& shape, JsonStates::Progress at, size_t choice) {
  const ArrayShape::Choice& c = next_choices(shape, at)[choice];
  if (shape.is_unique) set_seen(at, choice);
  for (size_t i = 0; i < shape.counts.size() && !shape.is_unique; ++i) {
    if ((c.counted >> i & 1) == 0) continue;
    at.seen.resize(shape.counts.size());
    const uint64_t enough = shape.counts[i].max == ~0u ? shape.counts[i].min : uint64_t{shape.counts[i].max} + 1;
    at.seen[i] = std::min(at.seen[i] + 1, enough);
  }
  const uint32_t enough = std::max<uint32_t>(shape.min, static_cast<uint32_t>(shape.places.size()));
  if (shape.max != ~0u || at.count < enough) ++at.count;
  return at;
}

}  // namespace deepinfer
