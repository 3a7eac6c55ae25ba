// SPDX-License-Identifier: MIT
#include "grammar/machine.h"

#include <algorithm>

#include "grammar/bytes_to_end.h"
#include "grammar/closure.h"
#include "grammar/string_scan.h"

namespace deepinfer {
namespace {

using Kind = GrammarNode::Kind;

bool meets(const CharSet& set, const CharScan& scan) {
  const char32_t begin = scan.begin, end = scan.end;
  if (scan.is_escape && (set.contains('"') || set.contains('\\'))) return true;
  auto after = std::ranges::upper_bound(set.spans(), begin, {}, &CharSet::Span::begin);
  if (after != set.spans().end() && after->begin < end) return true;
  return after != set.spans().begin() && std::prev(after)->end > begin;
}

}  // namespace

Machine::Machine(std::unique_ptr<GrammarProgram> program, const MachineLimits& limits)
    : program_(std::move(program)), limits_(limits), program_bytes_(program_->num_bytes()) {
  states_.push_back({});  // kDead: no items
  std::vector<Item> accept{{GrammarProgram::kAccept, 0, 0, kDead}};
  end_ = intern(accept);
  Closure closure(*this);
  closure.call_last(program_->start, end_);
  start_ = closure.finish();
}

std::vector<Machine::Item> Machine::items(StateId state) const {
  return {items_.begin() + states_[state].begin, items_.begin() + states_[state].end};
}

void Machine::fail(std::string reason) {
  if (failure_.empty()) failure_ = std::move(reason);
}

size_t Machine::num_bytes() const {
  return items_.size() * sizeof(Item) + states_.size() * (sizeof(State) + 40) + num_blocks_ * sizeof(Block) +
         json_states_.num_bytes() + program_->regexes.num_bytes() + program_bytes_;
}

StateId Machine::intern(std::vector<Item>& items) {
  std::ranges::sort(items);
  items.erase(std::unique(items.begin(), items.end()), items.end());
  if (items.empty()) return kDead;
  if (items.size() > limits_.items_per_state_max) {
    fail("the grammar is too ambiguous: more than " + std::to_string(limits_.items_per_state_max) +
         " readings at once");
    return kDead;
  }
  size_t h = items.size();
  for (const Item& item : items)
    for (const uint32_t word : {item.node, item.a, item.b, item.frame})
      h = (h ^ word) * 0x9E3779B97F4A7C15ull + (h >> 31);
  const uint32_t known = interned_.find(h, [&](uint32_t id) {
    return std::equal(items_.begin() + states_[id].begin, items_.begin() + states_[id].end, items.begin(), items.end());
  });
  if (known != FlatMap::kAbsent) return known;
  if (program_->regexes.is_full() || num_bytes() > limits_.bytes_max) {
    fail("the grammar's states need more memory than its limit");
    return kDead;
  }
  State state;
  state.begin = static_cast<uint32_t>(items_.size());
  items_.insert(items_.end(), items.begin(), items.end());
  state.end = static_cast<uint32_t>(items_.size());
  state.is_accepting =
      std::ranges::any_of(items, [](const Item& item) { return item.node == GrammarProgram::kAccept; });
  states_.push_back(std::move(state));
  interned_.insert(h, static_cast<StateId>(states_.size() - 1));
  return static_cast<StateId>(states_.size() - 1);
}

StateId Machine::step_slow(StateId state, uint8_t byte) {
  Closure closure(*this);
  for (uint32_t i = states_[state].begin; i < states_[state].end; ++i) step_item(Item(items_[i]), byte, closure);
  const StateId next = closure.finish();
  std::unique_ptr<Block>& block = states_[state].blocks[byte >> 5];
  if (!block) {
    block = std::make_unique<Block>();
    block->fill(-1);
    ++num_blocks_;
  }
  (*block)[byte & 31] = static_cast<int32_t>(next);
  return next;
}

StateId Machine::step_token(StateId state, TokenId control) {
  Closure closure(*this);
  for (const Item& item : items(state)) {
    const GrammarNode& node = program_->nodes[item.node];
    if (node.kind != Kind::kTokens) continue;
    const std::vector<TokenId>& ids = program_->token_lists[node.a];
    if (std::ranges::find(ids, control) != ids.end()) closure.pop(item.frame);
  }
  return closure.finish();
}

void Machine::next_controls(StateId state, std::vector<TokenId>& out) const {
  for (uint32_t i = states_[state].begin; i < states_[state].end; ++i) {
    const GrammarNode& node = program_->nodes[items_[i].node];
    if (node.kind != Kind::kTokens) continue;
    const std::vector<TokenId>& ids = program_->token_lists[node.a];
    out.insert(out.end(), ids.begin(), ids.end());
  }
}

void Machine::step_item(const Item& item, uint8_t byte, Closure& closure) {
  switch (program_->nodes[item.node].kind) {
    case Kind::kRaw: step_raw(item, byte, closure); return;
    case Kind::kString: step_string(item, byte, closure); return;
    case Kind::kObject: step_object(*this, json_states_, item, byte, closure); return;
    case Kind::kArray: step_array(*this, json_states_, item, byte, closure); return;
    default: return;
  }
}

void Machine::step_raw(const Item& item, uint8_t byte, Closure& closure) {
  RegexPool& regexes = program_->regexes;
  const CharScan scan = scan_raw(item.b, byte);
  if (scan.result == CharScan::Result::kPartial && meets(regexes.live_chars(item.a), scan))
    closure.add({item.node, item.a, scan.phase, item.frame});
  if (scan.result != CharScan::Result::kChar) return;
  const RegexId next = regexes.derive(item.a, scan.begin);
  if (!regexes.has_text(next)) return;
  if (regexes.is_nullable(next)) closure.pop(item.frame);
  if (next != RegexPool::kEmpty) closure.add({item.node, next, kPhaseStart, item.frame});
}

void Machine::step_string(const Item& item, uint8_t byte, Closure& closure) {
  RegexPool& regexes = program_->regexes;
  const CharScan scan = scan_json_string(item.b, byte);
  switch (scan.result) {
    case CharScan::Result::kDead: return;
    case CharScan::Result::kQuote:
      if (regexes.is_nullable(item.a)) closure.pop(item.frame);
      return;
    case CharScan::Result::kPartial:
      if (item.b == kPhaseOpen ? regexes.has_text(item.a) : meets(regexes.live_chars(item.a), scan))
        closure.add({item.node, item.a, scan.phase, item.frame});
      return;
    case CharScan::Result::kChar: {
      const RegexId next = regexes.derive(item.a, scan.begin);
      if (regexes.has_text(next)) closure.add({item.node, next, kPhaseStart, item.frame});
      return;
    }
  }
}

StateId Machine::saturated(StateId state, int tier, uint32_t bytes_max) {
  const auto slot = static_cast<size_t>(tier);
  if (states_[state].saturated[slot] != ~0u) return states_[state].saturated[slot];
  std::vector<Item> copy = items(state);
  for (Item& item : copy)
    if (item.node == GrammarProgram::kRaw || item.node == GrammarProgram::kString)
      item.a = program_->regexes.saturated(item.a, bytes_max);
  const StateId result = intern(copy);
  states_[state].saturated[slot] = result;
  return result;
}

uint64_t Machine::bytes_to_end(StateId state) {
  if (!bytes_to_end_) bytes_to_end_ = std::make_shared<BytesToEnd>();
  return bytes_to_end_->of_state(*this, json_states_, state);
}

uint32_t Machine::num_absorbed(StateId state, const CharSet& set) const {
  uint32_t most = 0;
  for (uint32_t i = states_[state].begin; i < states_[state].end; ++i) {
    const Item& item = items_[i];
    if ((item.node == GrammarProgram::kString || item.node == GrammarProgram::kRaw) && item.b == kPhaseStart)
      most = std::max(most, program_->regexes.num_absorbed(item.a, set));
    if (program_->nodes[item.node].kind == Kind::kObject && json_item::phase(item.b) == json_item::kKey) {
      const JsonStates::Key& key = json_states_.key(json_item::payload(item.b));
      if (key.other >= 0 && key.phase == kPhaseStart)
        most = std::max(most, program_->regexes.num_absorbed(key.keys, set));
    }
  }
  return most;
}

StateId Machine::body_alone(StateId state) {
  std::vector<Item> copy = items(state);
  copy[0].frame = end_;
  return intern(copy);
}

bool Machine::is_body(StateId state) const {
  const State& s = states_[state];
  if (s.end != s.begin + 1) return false;
  const Item& item = items_[s.begin];
  return item.node == GrammarProgram::kString && item.b == kPhaseStart && program_->regexes.is_repeat(item.a);
}

}  // namespace deepinfer
