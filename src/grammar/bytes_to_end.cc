// SPDX-License-Identifier: MIT
#include "grammar/bytes_to_end.h"

#include <algorithm>

#include "grammar/closure.h"
#include "grammar/string_scan.h"

namespace deepinfer {
namespace {

using Kind = GrammarNode::Kind;

uint64_t sum(uint64_t a, uint64_t b) { return std::min(a + b, BytesToEnd::kNever); }

uint64_t of_regex(RegexPool& regexes, RegexId id) {
  const uint32_t shortest = regexes.shortest(id);
  return shortest == RegexPool::kInfinite ? BytesToEnd::kNever : shortest;
}

}  // namespace

uint64_t BytesToEnd::of_node(GrammarProgram& program, NodeId id) const {
  const GrammarNode& node = program.nodes[id];
  uint64_t total = 0;
  switch (node.kind) {
    case Kind::kAccept: return 0;
    case Kind::kRaw: return of_regex(program.regexes, node.a);
    case Kind::kString: return sum(2, of_regex(program.regexes, node.a));
    case Kind::kSequence:
      for (uint32_t i = node.a; i < node.b; ++i) total = sum(total, nodes_[program.children[i]]);
      return total;
    case Kind::kChoice:
      total = kNever;
      for (uint32_t i = node.a; i < node.b; ++i) total = std::min(total, nodes_[program.children[i]]);
      return total;
    case Kind::kRepeat: return node.b == 0 ? 0 : std::min(kNever, nodes_[node.a] * std::min<uint64_t>(node.b, 1 << 20));
    case Kind::kObject: return sum(1, of_object(program.objects[node.a], {}));
    case Kind::kArray: return sum(1, of_array(program.arrays[node.a], {}));
    case Kind::kTokens: return 1;
  }
  return kNever;
}

// Members still required with their names, a comma between, and the closing brace.
uint64_t BytesToEnd::of_object(const ObjectShape& shape, const JsonStates::Progress& at) const {
  uint64_t total = 1, num_missing = 0;
  for (size_t i = 0; i < shape.members.size(); ++i) {
    const ObjectShape::Member& member = shape.members[i];
    const bool has_come = shape.any_order ? i / 64 < at.seen.size() && (at.seen[i / 64] >> (i % 64) & 1) != 0
                                          : member.position < at.position;
    if (!member.is_required || has_come) continue;
    ++num_missing;
    total = sum(total, member.name.size() + 4 + nodes_[member.value]);
  }
  if ((shape.obligations & ~at.flags) != 0) ++num_missing, total = sum(total, 6);
  const uint64_t count = at.count + num_missing;
  return count < shape.min ? sum(total, 6 * (shape.min - count)) : total;
}

uint64_t BytesToEnd::of_array(const ArrayShape& shape, const JsonStates::Progress& at) const {
  uint64_t total = 1;
  for (uint64_t i = at.count; i < shape.min; ++i) {
    const auto& place = shape.places[std::min<size_t>(i, shape.places.size() - 1)];
    uint64_t item = kNever;
    for (const ArrayShape::Choice& choice : place)
      if (choice.is_possible) item = std::min(item, nodes_[choice.value]);
    if (i + 1 >= shape.places.size()) return sum(total, std::min(kNever, (item + 1) * (shape.min - i)));
    total = sum(total, item + 1);
  }
  for (size_t k = 0; k < shape.counts.size() && !shape.is_unique; ++k) {
    const uint64_t have = k < at.seen.size() ? at.seen[k] : 0;
    if (have < shape.counts[k].min && shape.min == 0) total = sum(total, 2 * (shape.counts[k].min - have));
  }
  return total;
}

void BytesToEnd::measure_nodes(GrammarProgram& program) {
  nodes_.assign(program.nodes.size(), kNever);
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id = static_cast<NodeId>(nodes_.size()); id-- > 0;) {
      const uint64_t bytes = of_node(program, id);
      if (bytes >= nodes_[id]) continue;
      nodes_[id] = bytes;
      changed = true;
    }
  }
}

uint64_t BytesToEnd::of_item(GrammarProgram& program, const JsonStates& states, const Machine::Item& item) const {
  const GrammarNode& node = program.nodes[item.node];
  uint64_t total = 0;
  switch (node.kind) {
    case Kind::kRaw: return sum(of_regex(program.regexes, item.a), item.b == kPhaseStart ? 0 : 1);
    case Kind::kString:
      return sum(of_regex(program.regexes, item.a), item.b == kPhaseStart ? 1 : item.b == kPhaseOpen ? 2 : 6);
    case Kind::kSequence:
      for (uint32_t i = node.a + item.a; i < node.b; ++i) total = sum(total, nodes_[program.children[i]]);
      return total;
    case Kind::kRepeat: return std::min(kNever, nodes_[node.a] * std::min<uint64_t>(item.a, 1 << 20));
    case Kind::kObject: {
      const ObjectShape& shape = program.objects[node.a];
      total = of_object(shape, states.progress(item.a));
      switch (json_item::phase(item.b)) {
        case json_item::kOpen: return sum(total, 1);
        case json_item::kNext: return total > 1 ? total - 1 : total + 5;  // the comma was counted with what is missing
        case json_item::kColon: return sum(total, 1 + nodes_[json_item::payload(item.b)]);
        case json_item::kValue: return sum(total, nodes_[json_item::payload(item.b)]);
        case json_item::kKey: {
          const JsonStates::Key& key = states.key(json_item::payload(item.b));
          uint64_t best = kNever;
          for (uint32_t i = key.begin; key.other < 0 && i < key.end; ++i) {
            if (!may_take_member(shape, states.progress(item.a), i)) continue;
            const ObjectShape::Member& member = shape.members[i];
            // A required member is counted in `total` as a whole: comma, quote and characters that have come go off.
            best = std::min(best, member.is_required
                                      ? total - std::min<uint64_t>(total, key.depth + 2)
                                      : sum(total, member.name.size() - key.depth + nodes_[member.value] + 3));
          }
          if (key.other >= 0)
            best = sum(total, of_regex(program.regexes, key.keys) + 3 +
                                  nodes_[shape.others[static_cast<size_t>(key.other)].value]);
          return sum(best, key.phase == kPhaseStart ? 0 : 6);
        }
        default: return total;
      }
    }
    case Kind::kArray: {
      total = of_array(program.arrays[node.a], states.progress(item.a));
      const uint32_t phase = json_item::phase(item.b);
      return sum(total, phase == json_item::kOpen || phase == json_item::kNext ? 1 : 0);
    }
    case Kind::kTokens: return 1;
    case Kind::kChoice: return nodes_[item.node];
    default: return 0;
  }
}

uint64_t BytesToEnd::of_state(Machine& machine, const JsonStates& states, StateId state) {
  if (state == Machine::kDead) return 0;  // the frame of the end
  if (nodes_.empty()) measure_nodes(machine.program());
  if (const auto known = states_.find(state); known != states_.end()) return known->second;
  uint64_t best = kNever;
  machine.work_ += machine.num_items(state);
  for (const Machine::Item& item : machine.items(state)) {
    const uint64_t own = of_item(machine.program(), states, item);
    if (own < best) best = std::min(best, sum(own, of_state(machine, states, item.frame)));
  }
  states_[state] = best;
  return best;
}

}  // namespace deepinfer
