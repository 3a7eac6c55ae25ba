// SPDX-License-Identifier: MIT
// Objects and arrays of a grammar as nodes of their own: which keys may come, in which order, what must have come
// before the end. What has been seen so far is interned state, so n members in any order need no 2^n rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/flat_map.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

struct ObjectShape {
  struct Member {
    std::u32string name;
    uint32_t value = 0;     // node
    uint32_t position = 0;  // in the schema's order
    bool is_required = false;
    bool is_possible = true;  // false: no value satisfies the schema, so the key may not come
  };
  struct Others {  // keys that are no member's name
    RegexId keys = RegexPool::kAny;
    uint32_t value = 0;
    uint32_t obligations = 0;  // bits fulfilled by such a member
  };
  std::vector<Member> members;  // sorted by name
  std::vector<Others> others;
  uint32_t min = 0, max = ~0u;
  uint32_t obligations = 0;  // bits that must be fulfilled
  bool any_order = true;     // else: members by position, then others
};

struct ArrayShape {
  struct Choice {
    uint32_t value = 0;
    uint32_t counted = 0;  // bits of the counts this item raises
    bool is_possible = true;
  };
  struct Count {
    uint32_t min = 0, max = ~0u;
  };
  std::vector<std::vector<Choice>> places;  // by index; the last one repeats
  std::vector<Count> counts;
  uint32_t min = 0, max = ~0u;
  bool is_unique = false;  // then every place offers the same choices, each at most once
};

// Interned progress through shapes.
class JsonStates {
 public:
  struct Progress {
    uint32_t shape = 0;
    uint32_t count = 0;          // members or items so far, as far as it matters
    uint32_t flags = 0;          // obligations fulfilled
    uint32_t position = 0;       // schema order: first position that may still come
    std::vector<uint64_t> seen;  // any order: bits by member; counts of an array, choices taken
    bool operator==(const Progress&) const = default;
  };
  // Progress inside a key's text: among members [begin, end) of equal first `depth` code points, or in others[other].
  struct Key {
    uint32_t begin = 0, end = 0, depth = 0;
    int32_t other = -1;
    RegexId keys = 0;
    uint32_t phase = 0;  // string_scan.h
    bool operator==(const Key&) const = default;
  };

  uint32_t intern(const Progress& progress);
  uint32_t intern(const Key& key);
  const Progress& progress(uint32_t id) const { return progress_[id]; }
  const Key& key(uint32_t id) const { return keys_[id]; }
  size_t num_bytes() const { return progress_.size() * 128 + keys_.size() * 64; }

 private:
  std::vector<Progress> progress_;
  std::vector<Key> keys_;
  HashIndex progress_ids_, key_ids_;
};

// Rules of an object's progress.
bool may_close(const ObjectShape& shape, const JsonStates::Progress& at);
bool may_take_member(const ObjectShape& shape, const JsonStates::Progress& at, size_t member);
bool may_take_other(const ObjectShape& shape, const JsonStates::Progress& at, size_t other);
bool may_take_more(const ObjectShape& shape, const JsonStates::Progress& at);
JsonStates::Progress after_member(const ObjectShape& shape, JsonStates::Progress at, size_t member);
JsonStates::Progress after_other(const ObjectShape& shape, JsonStates::Progress at, size_t other);

// Rules of an array's progress.
bool may_close(const ArrayShape& shape, const JsonStates::Progress& at);
bool may_take(const ArrayShape& shape, const JsonStates::Progress& at, size_t choice);
bool may_take_more(const ArrayShape& shape, const JsonStates::Progress& at);
JsonStates::Progress after_item(const ArrayShape& shape, JsonStates::Progress at, size_t choice);
const std::vector<ArrayShape::Choice>& next_choices(const ArrayShape& shape, const JsonStates::Progress& at);

}  // namespace deepinfer
