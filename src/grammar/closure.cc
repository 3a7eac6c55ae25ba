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
    case GrammarNode::Kind::kChoice: call_last(item.node, item.frame); return;
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

namespace {

// Where going on at an item is entering one node that absorbs another: that node, and the item's form for it.
NodeId absorber(const GrammarProgram& program, Machine::Item& item) {
  const GrammarNode* node = &program.nodes[item.node];
  if (node->kind == GrammarNode::Kind::kSequence && node->a + item.a + 1 == node->b) {
    const NodeId last = program.children[node->a + item.a];
    if (program.absorbed(last) == 0) return 0;
    node = &program.nodes[last];
    item = {last, 0, 0, item.frame};
    if (node->kind == GrammarNode::Kind::kRepeat) item = {last, node->b, node->c, item.frame};
  }
  if (node->kind != GrammarNode::Kind::kRepeat) return node->kind == GrammarNode::Kind::kChoice ? item.node : 0;
  if (item.a != 0 || item.b != RegexPool::kInfinite) return 0;
  return item.node = program.absorbed(item.node);
}

}  // namespace

// Ambiguous rules read "x x x" as any nesting of repetitions in repetitions. Where an item that absorbs a node goes on
// with that node, the latter adds nothing: the item goes on with what follows it. So readings that allow the same texts
// are one, and the states of expressions stay few however long the text is. Frames of frames are short already.
void Closure::shorten(std::vector<Item>& items) {
  const GrammarProgram& program = machine_.program();
  for (size_t i = 0; i < items.size(); ++i) {
    Item item = items[i];
    const NodeId node = absorber(program, item);
    const NodeId absorbed = node == 0 ? 0 : program.absorbed(node);
    if (absorbed == 0) continue;
    items[i] = item;
    std::vector<Item> others = machine_.items(item.frame);
    const auto absorbs = [&](Item other) { return absorber(program, other) == absorbed; };
    const auto is_other = [&](const Item& other) { return !absorbs(other); };
    const auto first = std::stable_partition(others.begin(), others.end(), is_other);
    if (first == others.end()) continue;
    for (auto other = first; other != others.end(); ++other) items.push_back({item.node, item.a, item.b, other->frame});
    others.erase(first, others.end());
    items[i].frame = machine_.intern(others);  // kDead: nothing is left
  }
  std::erase_if(items, [&](Item item) { return item.frame == Machine::kDead && item.node != GrammarProgram::kAccept; });
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
  shorten(items);
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
