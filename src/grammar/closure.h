// SPDX-License-Identifier: MIT
// The items of one new state: what follows from completed lexemes and entered nodes without reading a byte.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "grammar/machine.h"

namespace deepinfer {

// Values in the order they came, each once. A few are looked for one by one, many by their hash.
template <typename T>
class OrderedSet {
 public:
  // Its place, and whether it is new.
  std::pair<size_t, bool> insert(const T& value) {
    const size_t known = find(value);
    if (known != values_.size()) return {known, false};
    values_.push_back(value);
    if (values_.size() == kFew)
      for (size_t i = 0; i < kFew; ++i) index_.insert(hash(values_[i]), static_cast<uint32_t>(i));
    else if (values_.size() > kFew) index_.insert(hash(value), static_cast<uint32_t>(values_.size() - 1));
    return {values_.size() - 1, true};
  }
  const std::vector<T>& values() const { return values_; }

 private:
  static constexpr size_t kFew = 24;
  static uint64_t hash(uint32_t value) { return mixed_bits(value); }
  static uint64_t hash(const Machine::Item& item) {
    return mixed_bits(mixed_bits(uint64_t{item.node} << 32 | item.frame) + (uint64_t{item.a} << 32 | item.b));
  }
  size_t find(const T& value) const {
    if (values_.size() < kFew)
      return static_cast<size_t>(std::find(values_.begin(), values_.end(), value) - values_.begin());
    const uint32_t at = index_.find(hash(value), [&](uint32_t i) { return values_[i] == value; });
    return at == FlatMap::kAbsent ? values_.size() : at;
  }
  std::vector<T> values_;
  HashIndex index_;
};

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
    OrderedSet<Item> items;
    OrderedSet<StateId> frames;  // whose items belong to it too
    StateId resolved = 0;
    bool is_open = false;
  };
  std::pair<size_t, bool> pending_of(NodeId node);  // and whether it is new
  void enter(NodeId node, StateId frame);
  void add_array(const Item& item);
  void shorten(std::vector<Item>& items);
  StateId resolve(StateId frame);

  Machine& machine_;
  std::vector<Item> done_;
  OrderedSet<Item> seen_;
  OrderedSet<StateId> popped_;
  OrderedSet<NodeId> pending_nodes_;
  std::vector<Pending> pending_;  // of these nodes
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
