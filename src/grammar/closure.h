// SPDX-License-Identifier: MIT
// The items of one new state: what follows from completed lexemes and entered nodes without reading a byte.
#pragma once

#include <vector>

#include "grammar/machine.h"

namespace deepinfer {

class Closure {
 public:
  using Item = Machine::Item;
  explicit Closure(Machine& machine) : machine_(machine) {}

  // Go on at `item`; a scanning item stays as it is.
  void add(const Item& item);
  // Enter `node`; go on at `next` when it is complete.
  void call(NodeId node, const Item& next);
  // Enter `node` as the last part of what `frame` waits for.
  void call_last(NodeId node, StateId frame);
  // What `frame` waits for is complete.
  void pop(StateId frame);
  StateId finish();

 private:
  // Frames of this closure are numbered from kPending until all their items are known.
  static constexpr StateId kPending = 1u << 31;
  struct Pending {
    NodeId node;
    std::vector<Item> items;
    std::vector<StateId> frames;  // whose items belong to it too
    StateId resolved = 0;
    bool is_open = false;
  };
  size_t pending_of(NodeId node, bool& is_new);
  void enter(NodeId node, StateId frame);
  void add_array(const Item& item);
  StateId resolve(StateId frame);

  Machine& machine_;
  std::vector<Item> done_, seen_;
  std::vector<StateId> popped_;
  std::vector<Pending> pending_;
  int depth_ = 0;
};

// Object and array items: what `b` holds.
namespace json_item {
enum Phase : uint32_t { kOpen, kFirst, kNext, kColon, kValue, kAfter, kKey };
constexpr uint32_t kSpaceShift = 4, kPayloadShift = 12;
inline uint32_t phase(uint32_t b) { return b & 15; }
inline uint32_t space(uint32_t b) { return b >> kSpaceShift & 255; }
inline uint32_t payload(uint32_t b) { return b >> kPayloadShift; }
inline uint32_t make(Phase phase, uint32_t space = 0, uint32_t payload = 0) {
  return static_cast<uint32_t>(phase) | space << kSpaceShift | payload << kPayloadShift;
}
}  // namespace json_item

void step_object(Machine& machine, JsonStates& states, const Machine::Item& item, uint8_t byte, Closure& closure);
void step_array(Machine& machine, JsonStates& states, const Machine::Item& item, uint8_t byte, Closure& closure);

}  // namespace deepinfer
