// SPDX-License-Identifier: MIT
// Which nodes have a finite text at all; members and items without one become impossible.
#include <algorithm>

#include "grammar/schema_lowering.h"

namespace deepinfer {

bool SchemaLowering::is_productive(const ObjectShape& shape) const {
  uint64_t num_possible = 0;
  uint32_t fulfilled = 0;
  for (const ObjectShape::Member& member : shape.members) {
    const bool can_come = member.is_possible && productive_[member.value];
    if (member.is_required && !can_come) return false;
    num_possible += can_come ? 1 : 0;
  }
  bool has_others = false;
  for (const ObjectShape::Others& others : shape.others) {
    if (!productive_[others.value]) continue;
    has_others = true;
    fulfilled |= others.obligations;
  }
  const auto num_required = std::ranges::count_if(shape.members, &ObjectShape::Member::is_required);
  if (shape.min > shape.max || static_cast<uint64_t>(num_required) > shape.max) return false;
  if (shape.obligations != 0 && static_cast<uint64_t>(num_required) >= shape.max) return false;
  return (shape.obligations & ~fulfilled) == 0 && (has_others || num_possible >= shape.min);
}

bool SchemaLowering::is_productive(const ArrayShape& shape) const {
  if (shape.min > shape.max) return false;
  std::vector<uint64_t> reachable(shape.counts.size(), 0);
  uint64_t length = 0;
  for (size_t i = 0; i < shape.places.size(); ++i) {
    const bool is_last = i + 1 == shape.places.size();
    bool any = false;
    for (const ArrayShape::Choice& choice : shape.places[i]) {
      if (!choice.is_possible || !productive_[choice.value]) continue;
      any = true;
      for (size_t k = 0; k < reachable.size(); ++k)
        if ((choice.counted >> k & 1) != 0) reachable[k] += is_last ? ~0u : 1;
    }
    if (!any) break;
    length = is_last ? UINT64_MAX : length + 1;
  }
  if (length < shape.min) return false;
  for (size_t k = 0; k < reachable.size(); ++k)
    if (reachable[k] < shape.counts[k].min || shape.counts[k].min > shape.max) return false;
  return true;
}

bool SchemaLowering::is_productive(NodeId id) const {
  const GrammarNode& node = program_.nodes[id];
  switch (node.kind) {
    case GrammarNode::Kind::kRaw:
    case GrammarNode::Kind::kString: return productive_[id];
    case GrammarNode::Kind::kChoice:
      return std::any_of(program_.children.begin() + node.a, program_.children.begin() + node.b,
                         [&](NodeId child) { return productive_[child]; });
    case GrammarNode::Kind::kObject: return is_productive(program_.objects[node.a]);
    case GrammarNode::Kind::kArray: return is_productive(program_.arrays[node.a]);
    default: return true;
  }
}

void SchemaLowering::find_productive(NodeId first) {
  productive_.assign(program_.nodes.size(), false);
  for (NodeId id = first; id < program_.nodes.size(); ++id) {
    const GrammarNode& node = program_.nodes[id];
    if (node.kind == GrammarNode::Kind::kRaw || node.kind == GrammarNode::Kind::kString)
      productive_[id] = program_.regexes.has_text(node.a);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id = static_cast<NodeId>(program_.nodes.size()); id-- > first;) {
      const GrammarNode::Kind kind = program_.nodes[id].kind;
      if (productive_[id] || kind == GrammarNode::Kind::kRaw || kind == GrammarNode::Kind::kString) continue;
      if (is_productive(id)) changed = productive_[id] = true;
    }
  }
}

void SchemaLowering::drop_unproductive(NodeId first) {
  for (NodeId id = first; id < program_.nodes.size(); ++id) {
    const GrammarNode node = program_.nodes[id];
    if (node.kind == GrammarNode::Kind::kChoice) {
      std::vector<NodeId> ways;
      for (uint32_t i = node.a; i < node.b; ++i)
        if (productive_[program_.children[i]]) ways.push_back(program_.children[i]);
      if (ways.size() < node.b - node.a) program_.set_list(id, GrammarNode::Kind::kChoice, ways);
    } else if (node.kind == GrammarNode::Kind::kObject) {
      ObjectShape& shape = program_.objects[node.a];
      for (ObjectShape::Member& member : shape.members)
        if (member.is_possible && !productive_[member.value]) member.is_possible = false;
      std::erase_if(shape.others, [&](const ObjectShape::Others& others) { return !productive_[others.value]; });
    } else if (node.kind == GrammarNode::Kind::kArray) {
      for (auto& place : program_.arrays[node.a].places)
        for (ArrayShape::Choice& choice : place) choice.is_possible = choice.is_possible && productive_[choice.value];
    }
  }
}

}  // namespace deepinfer
