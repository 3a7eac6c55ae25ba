// SPDX-License-Identifier: MIT
// How much may be worked out in one call. Counted, not timed: a unit is an item put into a new state, a new derivative
// or a few places of a trie, some tens of nanoseconds each. What was worked out is kept, so that a call that was cut
// short gets further when it is made again.
#pragma once

#include <cstdint>

namespace deepinfer {

struct WorkBudget {
  uint64_t units = UINT64_MAX;
  void spend(uint64_t n) { units -= n < units ? n : units; }
  bool is_spent() const { return units == 0; }
};

}  // namespace deepinfer
