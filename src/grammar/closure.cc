// SPDX-License-Identifier: MIT
#include "grammar/closure.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int kDepthMax = 2'000;  // nodes entered inside each other without a byte read

}  // namespace

void Closure::add(const Item& item) {
  const GrammarNode& node = machine_.program().nodes[item.node];
  ++machine_.work_;
  switch (node.kind) {
    case GrammarNode::Kind::kSequence: {
      if (!seen_.insert(item).second) return;
      const NodeId child = machine_.program().children[node.a + item.a];
      if (node.a + item.a + 1 == node.b) call_last(child, item.frame);
      else call(child, {item.node, item.a + 1, 0, item.frame});
      return;
    }
    case GrammarNode::Kind::kRepeat: {
      if (!seen_.insert(item).second) return;
      if (item.a == 0) pop(item.frame);
      if (item.b == 0) return;
      const uint32_t room = item.b == RegexPool::kInfinite ? item.b : item.b - 1;
      if (room == 0) call_last(node.a, item.frame);
      else call(node.a, {item.node, item.a == 0 ? 0 : item.a - 1, room, item.frame});
      return;
    }
    case GrammarNode::Kind::kArray: add_array(item); return;
    case GrammarNode::Kind::kObject:
      done_.push_back(item);
      if (json_item::phase(item.b) == json_item::kValue)
        call(json_item::payload(item.b), {item.node, item.a, json_item::make(json_item::kAfter), item.frame});
      return;
    default: done_.push_back(item); return;
  }
}

void Closure::add_array(const Item& item) {
  done_.push_back(item);
  const uint32_t phase = json_item::phase(item.b);
  if (phase != json_item::kFirst && phase != json_item::kNext) return;
  if (!seen_.insert(item).second) return;
  const ArrayShape& shape = machine_.program().arrays[machine_.program().nodes[item.node].a];
  const JsonStates::Progress progress = machine_.json_states_.progress(item.a);
  const size_t num_choices = next_choices(shape, progress).size();
  for (size_t i = 0; i < num_choices; ++i) {
    if (!may_take(shape, progress, i)) continue;
    const uint32_t after = machine_.json_states_.intern(after_item(shape, progress, i));
    call(next_choices(shape, progress)[i].value, {item.node, after, json_item::make(json_item::kAfter), item.frame});
  }
}

std::pair<size_t, bool> Closure::pending_of(NodeId node) {
  const auto found = pending_nodes_.insert(node);
  if (found.second) pending_.emplace_back();
  return found;
}

void Closure::call(NodeId node, const Item& next) {
  const auto [at, is_new] = pending_of(node);
  pending_[at].items.insert(next);
  if (machine_.program().nodes[node].nullable && machine_.program().nodes[next.node].kind != GrammarNode::Kind::kRepeat)
    add(next);
  if (is_new) enter(node, kPending | static_cast<StateId>(at));
}

void Closure::call_last(NodeId node, StateId frame) {
  const auto [at, is_new] = pending_of(node);
  pending_[at].frames.insert(frame);
  if (machine_.program().nodes[node].nullable) pop(frame);
  if (is_new) enter(node, kPending | static_cast<StateId>(at));
}

void Closure::enter(NodeId id, StateId frame) {
  const GrammarNode node = machine_.program().nodes[id];
  if (++depth_ > kDepthMax) {
    machine_.fail("the grammar enters more than 2000 rules without reading text");
    --depth_;
    return;
  }
  switch (node.kind) {
    case GrammarNode::Kind::kAccept: break;
    case GrammarNode::Kind::kRaw:
      if (machine_.program().regexes.has_text(node.a)) done_.push_back({GrammarProgram::kRaw, node.a, 0, frame});
      break;
    case GrammarNode::Kind::kString: done_.push_back({GrammarProgram::kString, node.a, 1u << 28, frame}); break;
    case GrammarNode::Kind::kSequence:
      if (node.a != node.b) add({id, 0, 0, frame});
      break;
    case GrammarNode::Kind::kChoice:
      for (uint32_t i = node.a; i < node.b; ++i) call_last(machine_.program().children[i], frame);
      break;
    case GrammarNode::Kind::kRepeat: add({id, node.b, node.c, frame}); break;
    case GrammarNode::Kind::kObject:
    case GrammarNode::Kind::kArray: {
      JsonStates::Progress progress;
      progress.shape = node.a;
      done_.push_back({id, machine_.json_states_.intern(progress), json_item::make(json_item::kOpen), frame});
      break;
    }
    case GrammarNode::Kind::kTokens: done_.push_back({id, 0, 0, frame}); break;
  }
  --depth_;
}

void Closure::pop(StateId frame) {
  if ((frame & kPending) != 0) return;  // empty matches were followed when the node was called
  if (!popped_.insert(frame).second) return;
  for (const Item& item : machine_.items(frame)) add(item);
}

StateId Closure::resolve(StateId frame) {
  if ((frame & kPending) == 0) return frame;
  const size_t at = frame & ~kPending;
  if (pending_[at].resolved != 0) return pending_[at].resolved;
  if (pending_[at].is_open) {
    machine_.fail("the grammar has a left recursion");
    return Machine::kDead;
  }
  pending_[at].is_open = true;
  std::vector<Item> items = pending_[at].items.values();
  for (Item& item : items) item.frame = resolve(item.frame);
  for (const StateId other : std::vector<StateId>(pending_[at].frames.values())) {
    if (const StateId whole = resolve(other); whole != Machine::kDead) {
      const std::vector<Item> more = machine_.items(whole);
      items.insert(items.end(), more.begin(), more.end());
    }
  }
  const StateId resolved = machine_.intern(items);
  pending_[at].resolved = resolved;
  pending_[at].is_open = false;
  return resolved;
}

StateId Closure::finish() {
  for (Item& item : done_) item.frame = resolve(item.frame);
  return machine_.intern(done_);
}

}  // namespace deepinfer
