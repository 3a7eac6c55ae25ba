// SPDX-License-Identifier: MIT
#include <algorithm>
#include <span>

#include "grammar/machine.h"

namespace deepinfer {

GrammarProgram::GrammarProgram() {
  nodes.push_back({GrammarNode::Kind::kAccept});
  nodes.push_back({GrammarNode::Kind::kRaw});
  nodes.push_back({GrammarNode::Kind::kString});
}

NodeId GrammarProgram::add(const GrammarNode& node) {
  nodes.push_back(node);
  return static_cast<NodeId>(nodes.size() - 1);
}

NodeId GrammarProgram::add_list(GrammarNode::Kind kind, const std::vector<NodeId>& parts) {
  const NodeId id = add({kind});
  set_list(id, kind, parts);
  return id;
}

void GrammarProgram::set_list(NodeId node, GrammarNode::Kind kind, const std::vector<NodeId>& parts) {
  const auto begin = static_cast<uint32_t>(children.size());
  children.insert(children.end(), parts.begin(), parts.end());
  nodes[node] = {kind, begin, static_cast<uint32_t>(children.size()), 0};
}

NodeId GrammarProgram::add_tokens(std::vector<TokenId> ids) {
  token_lists.push_back(std::move(ids));
  return add({GrammarNode::Kind::kTokens, static_cast<uint32_t>(token_lists.size() - 1)});
}

bool GrammarProgram::has_text() const {
  std::vector<bool> known(nodes.size(), false);
  const auto is_known = [&](NodeId child) { return known[child]; };
  const auto seen_now = [&](const GrammarNode& node) {
    const auto parts = [&] { return std::span(children).subspan(node.a, node.b - node.a); };
    switch (node.kind) {
      case GrammarNode::Kind::kRaw:
      case GrammarNode::Kind::kString: return node.a != RegexPool::kNone;
      case GrammarNode::Kind::kSequence: return std::ranges::all_of(parts(), is_known);
      case GrammarNode::Kind::kChoice: return std::ranges::any_of(parts(), is_known);
      case GrammarNode::Kind::kRepeat: return node.b == 0 || known[node.a];
      default: return true;
    }
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t id = nodes.size(); id-- > 0;)  // parts mostly stand behind what they are parts of
      if (!known[id] && seen_now(nodes[id])) changed = known[id] = true;
  }
  return known[start];
}

void GrammarProgram::find_nullable() {
  for (bool changed = true; changed;) {
    changed = false;
    for (GrammarNode& node : nodes) {
      if (node.nullable) continue;
      const auto is_nullable = [&](NodeId child) { return nodes[child].nullable; };
      const auto parts = [&] { return std::span(children).subspan(node.a, node.b - node.a); };  // of the two lists
      bool now = false;
      switch (node.kind) {
        case GrammarNode::Kind::kRaw: now = regexes.is_nullable(node.a); break;
        case GrammarNode::Kind::kSequence: now = std::ranges::all_of(parts(), is_nullable); break;
        case GrammarNode::Kind::kChoice: now = std::ranges::any_of(parts(), is_nullable); break;
        case GrammarNode::Kind::kRepeat: now = node.b == 0 || nodes[node.a].nullable; break;
        default: break;
      }
      changed |= now;
      node.nullable = now;
    }
  }
  for (GrammarNode& node : nodes)  // an empty repetition is worth as much as none
    if (node.kind == GrammarNode::Kind::kRepeat && nodes[node.a].nullable) node.b = 0;
  find_absorbed();
}

void GrammarProgram::find_absorbed() {
  absorbs_.assign(nodes.size(), 0);
  for (const auto& [node, other] : absorbed_) absorbs_[node] = other;
  std::unordered_map<NodeId, NodeId> any_number;  // of a child
  for (NodeId id = 0; id < static_cast<NodeId>(absorbs_.size()); ++id) {
    const GrammarNode node = nodes[id];
    if (node.kind != GrammarNode::Kind::kRepeat || node.c != RegexPool::kInfinite) continue;
    const auto [at, is_new] = any_number.emplace(node.a, id);
    if (is_new && node.b != 0) {
      at->second = add({GrammarNode::Kind::kRepeat, node.a, 0, RegexPool::kInfinite, true});
      absorbs_.push_back(at->second);
    }
    absorbs_[id] = at->second;
  }
}

size_t GrammarProgram::num_bytes() const {
  size_t bytes = nodes.size() * sizeof(GrammarNode) + children.size() * sizeof(NodeId);
  for (const ObjectShape& shape : objects)
    for (const ObjectShape::Member& member : shape.members) bytes += sizeof(member) + member.name.size() * 4;
  for (const ArrayShape& shape : arrays)
    for (const auto& place : shape.places) bytes += sizeof(place) + place.size() * sizeof(ArrayShape::Choice);
  return bytes;
}

}  // namespace deepinfer
