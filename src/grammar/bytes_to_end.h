// SPDX-License-Identifier: MIT
// How few bytes complete an item, a node or a state: exact for lexemes and sequences, an estimate from below for
// objects that may leave out members in several ways. Cached; belongs to one machine.
#pragma once

#include <unordered_map>
#include <vector>

#include "grammar/machine.h"

namespace deepinfer {

class BytesToEnd {
 public:
  static constexpr uint64_t kNever = uint64_t{1} << 60;

  uint64_t of_state(Machine& machine, const JsonStates& states, StateId state);

 private:
  void measure_nodes(GrammarProgram& program);
  uint64_t of_node(GrammarProgram& program, NodeId id) const;
  uint64_t of_item(GrammarProgram& program, const JsonStates& states, const Machine::Item& item) const;
  uint64_t of_object(const ObjectShape& shape, const JsonStates::Progress& at) const;
  uint64_t of_array(const ArrayShape& shape, const JsonStates::Progress& at) const;

  std::vector<uint64_t> nodes_;
  std::unordered_map<StateId, uint64_t> states_;
};

}  // namespace deepinfer
