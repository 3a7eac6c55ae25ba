// SPDX-License-Identifier: MIT
// One byte of an object or array: brackets, commas, keys and the white space between them.
#include <algorithm>

#include "grammar/closure.h"
#include "grammar/string_scan.h"

namespace deepinfer {
namespace {

using json_item::make;
using Item = Machine::Item;

constexpr uint32_t kOneSpace = 1, kLineBreak = 2, kSpaceMax = 200;

// White space as far as the policy goes: one space (where `one` says), or a line break and indentation.
bool step_space(const Item& item, uint8_t byte, bool one, bool line, Closure& closure) {
  const uint32_t space = json_item::space(item.b);
  uint32_t next = 0;
  if (byte == ' ' && space == 0 && one) next = kOneSpace;
  else if (byte == '\n' && space == 0 && line) next = kLineBreak;
  else if (byte == ' ' && space >= kLineBreak && space < kSpaceMax) next = space + 1;
  else return byte == ' ' || byte == '\n';
  const auto phase = static_cast<json_item::Phase>(json_item::phase(item.b));
  closure.add({item.node, item.a, make(phase, next, json_item::payload(item.b)), item.frame});
  return true;
}

bool has_member(const ObjectShape& shape, const JsonStates::Progress& at, const JsonStates::Key& key) {
  for (uint32_t i = key.begin; i < key.end; ++i)
    if (may_take_member(shape, at, i)) return true;
  return false;
}

class KeyStep {
 public:
  KeyStep(Machine& machine, JsonStates& states, const Item& item, Closure& closure)
      : machine_(machine),
        states_(states),
        item_(item),
        closure_(closure),
        shape_(machine.program().objects[machine.program().nodes[item.node].a]),
        progress_(states.progress(item.a)) {}

  void open() {
    add({0, static_cast<uint32_t>(shape_.members.size()), 0, -1, 0, kPhaseStart}, true);
    for (size_t i = 0; i < shape_.others.size(); ++i)
      if (may_take_other(shape_, progress_, i))
        add({0, static_cast<uint32_t>(shape_.members.size()), 0, static_cast<int32_t>(i), shape_.others[i].keys,
             kPhaseStart},
            true);
  }

  void step(uint8_t byte) {
    JsonStates::Key key = states_.key(json_item::payload(item_.b));
    const CharScan scan = scan_json_string(key.phase, byte);
    if (scan.result == CharScan::Result::kQuote) {
      close(key);
    } else if (scan.result == CharScan::Result::kChar) {
      advance(key, scan.begin);
      key.phase = kPhaseStart;
      add(key, true);
    } else if (scan.result == CharScan::Result::kPartial) {
      key.phase = scan.phase;
      if (key.other >= 0 && !may_become_name(key, scan)) key.begin = key.end = key.depth = 0;
      if (is_live(key, scan.begin, scan.end) ||
          (scan.is_escape && (is_live(key, '"', '"' + 1) || is_live(key, '\\', '\\' + 1))))
        add(key, false);
    }
  }

 private:
  RegexPool& regexes() { return machine_.program().regexes; }

  void add(const JsonStates::Key& key, bool check) {
    if (check && !(key.other >= 0 ? regexes().has_text(key.keys) : has_member(shape_, progress_, key))) return;
    closure_.add({item_.node, item_.a, make(json_item::kKey, 0, states_.intern(key)), item_.frame});
  }

  // Members whose next code point is in [begin, end).
  JsonStates::Key narrowed(JsonStates::Key key, char32_t begin, char32_t end) const {
    const auto first = shape_.members.begin();
    const auto at = [&](const ObjectShape::Member& m) -> int64_t {
      return m.name.size() > key.depth ? static_cast<int64_t>(m.name[key.depth]) : -1;
    };
    const auto low = std::partition_point(first + key.begin, first + key.end,
                                          [&](const auto& m) { return at(m) < static_cast<int64_t>(begin); });
    const auto high =
        std::partition_point(low, first + key.end, [&](const auto& m) { return at(m) < static_cast<int64_t>(end); });
    key.begin = static_cast<uint32_t>(low - first);
    key.end = static_cast<uint32_t>(high - first);
    return key;
  }

  // Whether a member's name goes on with what this part of a character may become.
  bool may_become_name(const JsonStates::Key& key, const CharScan& scan) const {
    const auto any = [&](char32_t begin, char32_t end) {
      const JsonStates::Key inside = narrowed(key, begin, end);
      return inside.begin < inside.end;
    };
    return any(scan.begin, scan.end) || (scan.is_escape && (any('"', '"' + 1) || any('\\', '\\' + 1)));
  }

  void advance(JsonStates::Key& key, char32_t c) {
    key = narrowed(key, c, c + 1);
    ++key.depth;
    if (key.other >= 0) {
      key.keys = regexes().derive(key.keys, c);
      if (key.begin == key.end) key.begin = key.end = key.depth = 0;  // no member's name any more
    }
  }

  bool is_live(const JsonStates::Key& key, char32_t begin, char32_t end) {
    if (key.other < 0) return has_member(shape_, progress_, narrowed(key, begin, end));
    const CharSet& live = regexes().live_chars(key.keys);
    return std::ranges::any_of(live.spans(), [&](const auto& s) { return s.begin < end && begin < s.end; });
  }

  void close(const JsonStates::Key& key) {
    const bool is_name = key.begin < key.end && shape_.members[key.begin].name.size() == key.depth;
    if (key.other < 0) {
      if (!is_name || !may_take_member(shape_, progress_, key.begin)) return;
      colon(after_member(shape_, progress_, key.begin), shape_.members[key.begin].value);
    } else if (!is_name && regexes().is_nullable(key.keys)) {
      colon(after_other(shape_, progress_, static_cast<size_t>(key.other)),
            shape_.others[static_cast<size_t>(key.other)].value);
    }
  }

  void colon(const JsonStates::Progress& after, NodeId value) {
    closure_.add({item_.node, states_.intern(after), make(json_item::kColon, 0, value), item_.frame});
  }

  Machine& machine_;
  JsonStates& states_;
  const Item item_;
  Closure& closure_;
  const ObjectShape& shape_;
  const JsonStates::Progress progress_;
};

}  // namespace

void step_object(Machine& machine, JsonStates& states, const Item& item, uint8_t byte, Closure& closure) {
  const ObjectShape& shape = machine.program().objects[machine.program().nodes[item.node].a];
  const JsonStates::Progress& progress = states.progress(item.a);
  const bool flexible = machine.program().flexible_space;
  const uint32_t space = json_item::space(item.b);
  switch (json_item::phase(item.b)) {
    case json_item::kOpen:
      if (byte == '{') closure.add({item.node, item.a, make(json_item::kFirst), item.frame});
      return;
    case json_item::kFirst:
    case json_item::kNext:
      if (flexible && step_space(item, byte, json_item::phase(item.b) == json_item::kNext, true, closure)) return;
      if (byte == '"') KeyStep(machine, states, item, closure).open();
      if (byte == '}' && json_item::phase(item.b) == json_item::kFirst && may_close(shape, progress))
        closure.pop(item.frame);
      return;
    case json_item::kKey: KeyStep(machine, states, item, closure).step(byte); return;
    case json_item::kColon:
      if (byte != ':') return;
      if (flexible)
        closure.add({item.node, item.a, make(json_item::kValue, 0, json_item::payload(item.b)), item.frame});
      else closure.call(json_item::payload(item.b), {item.node, item.a, make(json_item::kAfter), item.frame});
      return;
    case json_item::kValue:
      if (flexible) step_space(item, byte, true, false, closure);
      return;
    case json_item::kAfter:
      if (flexible && may_close(shape, progress) && step_space(item, byte, false, true, closure)) return;
      if (byte == ',' && space == 0 && may_take_more(shape, progress))
        closure.add({item.node, item.a, make(json_item::kNext), item.frame});
      if (byte == '}' && may_close(shape, progress)) closure.pop(item.frame);
      return;
    default: return;
  }
}

void step_array(Machine& machine, JsonStates& states, const Item& item, uint8_t byte, Closure& closure) {
  const ArrayShape& shape = machine.program().arrays[machine.program().nodes[item.node].a];
  const JsonStates::Progress progress = states.progress(item.a);
  const bool flexible = machine.program().flexible_space;
  switch (json_item::phase(item.b)) {
    case json_item::kOpen:
      if (byte == '[') closure.add({item.node, item.a, make(json_item::kFirst), item.frame});
      return;
    case json_item::kFirst:
    case json_item::kNext:
      if (flexible && step_space(item, byte, json_item::phase(item.b) == json_item::kNext, true, closure)) return;
      if (byte == ']' && json_item::phase(item.b) == json_item::kFirst && may_close(shape, progress))
        closure.pop(item.frame);
      return;
    case json_item::kAfter:
      if (flexible && may_close(shape, progress) && step_space(item, byte, false, true, closure)) return;
      if (byte == ',' && json_item::space(item.b) == 0 && may_take_more(shape, progress))
        closure.add({item.node, item.a, make(json_item::kNext), item.frame});
      if (byte == ']' && may_close(shape, progress)) closure.pop(item.frame);
      return;
    default: return;
  }
}

}  // namespace deepinfer
