// SPDX-License-Identifier: MIT
#include "grammar/machine.h"

#include <algorithm>

#include "grammar/bytes_to_end.h"
#include "grammar/closure.h"
#include "grammar/string_scan.h"

namespace deepinfer {
namespace {

using Kind = GrammarNode::Kind;

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
  work_ += items.size();
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

StateId Machine::alone(Item item, uint32_t chars_max) {
  if (item.node == GrammarProgram::kRaw || item.node == GrammarProgram::kString)
    item.a = program_->regexes.saturated(item.a, chars_max);
  if (program_->nodes[item.node].kind == Kind::kObject && json_item::phase(item.b) == json_item::kKey) {
    JsonStates::Key key = json_states_.key(json_item::payload(item.b));
    if (key.other >= 0) key.keys = program_->regexes.saturated(key.keys, chars_max);
    item.b = json_item::make(json_item::kKey, 0, json_states_.intern(key));
  }
  std::vector<Item> one{item};
  return intern(one);
}

StateId Machine::popped(StateId frame) {
  if (states_[frame].popped == ~0u) {
    Closure closure(*this);
    closure.pop(frame);
    const StateId next = closure.finish();
    states_[frame].popped = next;
  }
  return states_[frame].popped;
}

std::optional<Machine::StringBody> Machine::string_body(const Item& item) {
  if (item.node == GrammarProgram::kString && item.b == kPhaseStart) return StringBody{item.a, popped(item.frame)};
  if (program_->nodes[item.node].kind != Kind::kObject || json_item::phase(item.b) != json_item::kKey)
    return std::nullopt;
  const JsonStates::Key key = json_states_.key(json_item::payload(item.b));
  if (key.other < 0 || key.phase != kPhaseStart) return std::nullopt;
  const ObjectShape& shape = program_->objects[program_->nodes[item.node].a];
  const auto other = static_cast<size_t>(key.other);
  const uint32_t after = json_states_.intern(after_other(shape, json_states_.progress(item.a), other));
  std::vector<Item> colon{
      {item.node, after, json_item::make(json_item::kColon, 0, shape.others[other].value), item.frame}};
  return StringBody{key.keys, intern(colon), &shape, key};
}

namespace {

using ByteSet = std::array<uint64_t, 4>;

void add_byte(ByteSet& set, uint32_t byte) { set[byte >> 6] |= uint64_t{1} << (byte & 63); }
void add_bytes(ByteSet& set, std::string_view bytes) {
  for (const char byte : bytes) add_byte(set, static_cast<uint8_t>(byte));
}

// First bytes of the UTF-8 of [begin, end).
void add_lead_bytes(ByteSet& set, char32_t begin, char32_t end) {
  for (char32_t c = begin; c < std::min<char32_t>(end, 0x80); ++c) add_byte(set, c);
  if (end <= 0x80) return;
  const auto lead = [](char32_t c) -> uint32_t {
    return c < 0x800 ? 0xC0 | c >> 6 : c < 0x10000 ? 0xE0 | c >> 12 : 0xF0 | c >> 18;
  };
  for (uint32_t byte = lead(std::max<char32_t>(begin, 0x80)); byte <= lead(end - 1); ++byte) add_byte(set, byte);
}

constexpr size_t kNamesMax = 64;  // whose next characters are worth a look

}  // namespace

const std::array<uint64_t, 4>& Machine::live_bytes(StateId state) {
  if (!states_[state].knows_live) {
    ByteSet live{};
    for (uint32_t i = states_[state].begin; i < states_[state].end; ++i) add_live(Item(items_[i]), live);
    states_[state].live = live;
    states_[state].knows_live = true;
  }
  return states_[state].live;
}

void Machine::add_live(const Item& item, ByteSet& live) {
  const GrammarNode& node = program_->nodes[item.node];
  RegexPool& regexes = program_->regexes;
  const auto add_text = [&](RegexId text, bool is_string) {
    for (const CharSet::Span& span : regexes.live_chars(text).spans()) add_lead_bytes(live, span.begin, span.end);
    if (is_string) add_bytes(live, "\\\"");
  };
  if (node.kind == Kind::kRaw || node.kind == Kind::kString) {
    if (item.b == kPhaseOpen) add_byte(live, '"');
    else if (item.b == kPhaseStart) add_text(item.a, node.kind == Kind::kString);
    else live.fill(~uint64_t{0});
    return;
  }
  if (node.kind != Kind::kObject && node.kind != Kind::kArray) return;
  const bool is_object = node.kind == Kind::kObject;
  switch (json_item::phase(item.b)) {
    case json_item::kOpen: add_byte(live, is_object ? '{' : '['); return;
    case json_item::kColon: add_byte(live, ':'); return;
    case json_item::kFirst:
    case json_item::kNext:
    case json_item::kAfter: add_bytes(live, is_object ? " \n\",}" : " \n,]"); return;
    case json_item::kValue: add_byte(live, ' '); return;
    default: break;
  }
  if (!is_object) return;
  const JsonStates::Key key = json_states_.key(json_item::payload(item.b));
  if (key.phase != kPhaseStart || (key.other < 0 && key.end - key.begin > kNamesMax)) {
    live.fill(~uint64_t{0});
  } else if (key.other >= 0) {
    add_text(key.keys, true);
  } else {
    add_bytes(live, "\\\"");
    const ObjectShape& shape = program_->objects[node.a];
    for (uint32_t i = key.begin; i < key.end; ++i) {
      const std::u32string& name = shape.members[i].name;
      if (name.size() > key.depth) add_lead_bytes(live, name[key.depth], name[key.depth] + 1);
    }
  }
}

uint64_t Machine::bytes_to_end(StateId state) {
  if (!bytes_to_end_) bytes_to_end_ = std::make_shared<BytesToEnd>();
  return bytes_to_end_->of_state(*this, json_states_, state);
}

}  // namespace deepinfer
