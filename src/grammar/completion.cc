// SPDX-License-Identifier: MIT
// Texts that end an answer soon: greedy descent along an estimate of the bytes still needed.
#include <algorithm>

#include "grammar/grammar.h"

namespace deepinfer {

std::optional<std::string> Grammar::shortest_completion(StateId state, size_t bytes_max) {
  const std::lock_guard lock(mutex_);
  std::string text;
  while (state != Machine::kDead && !machine_.is_accepting(state)) {
    if (text.size() >= bytes_max) return std::nullopt;
    uint64_t best = UINT64_MAX;
    StateId next = Machine::kDead;
    int best_byte = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const StateId candidate = machine_.step(state, static_cast<uint8_t>(byte));
      if (candidate == Machine::kDead) continue;
      const uint64_t cost = machine_.bytes_to_end(candidate);
      if (cost >= best) continue;
      best = cost;
      next = candidate;
      best_byte = byte;
    }
    text.push_back(static_cast<char>(best_byte));
    state = next;
  }
  if (state == Machine::kDead) return std::nullopt;
  return text;
}

}  // namespace deepinfer
