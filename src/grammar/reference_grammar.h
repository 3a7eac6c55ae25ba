// SPDX-License-Identifier: MIT
// Test only: random small languages, each written as EBNF, as a regular expression or as a JSON Schema, beside a
// recogniser that shares nothing with the engine: a textbook Earley parser over bytes (Earley 1970) on an unrolled
// context-free grammar, without caches, automata or tricks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer {

class ReferenceGrammar {
 public:
  // A symbol is a nonterminal (>= 0) or a range of bytes.
  struct Symbol {
    int nonterminal = -1;
    uint8_t begin = 0, end = 0;  // inclusive
  };
  using Production = std::vector<Symbol>;

  int add_rule() {
    rules_.emplace_back();
    return static_cast<int>(rules_.size()) - 1;
  }
  void add(int rule, Production production) { rules_[static_cast<size_t>(rule)].push_back(std::move(production)); }
  static Symbol call(int rule) { return {rule, 0, 0}; }
  static Production bytes(const std::string& text) {
    Production out;
    for (const char c : text) out.push_back({-1, static_cast<uint8_t>(c), static_cast<uint8_t>(c)});
    return out;
  }
  int sequence(const std::vector<int>& parts) {
    const int rule = add_rule();
    Production production;
    for (const int part : parts) production.push_back(call(part));
    add(rule, std::move(production));
    return rule;
  }
  int choice(const std::vector<int>& parts) {
    const int rule = add_rule();
    for (const int part : parts) add(rule, {call(part)});
    return rule;
  }
  int literal(const std::string& text) {
    const int rule = add_rule();
    add(rule, bytes(text));
    return rule;
  }
  // max < 0: no bound.
  int repeat(int part, int min, int max) {
    const int rule = add_rule();
    Production least(static_cast<size_t>(min), call(part));
    if (max < 0) {
      const int more = add_rule();
      add(more, {});
      add(more, {call(part), call(more)});
      least.push_back(call(more));
      add(rule, std::move(least));
    } else {
      for (int n = min; n <= max; ++n) add(rule, Production(static_cast<size_t>(n), call(part)));
    }
    return rule;
  }
  // Any code point beyond ASCII in UTF-8 (Unicode table 3-7).
  int wide_char() {
    const int rule = add_rule();
    static constexpr uint8_t kForms[][8] = {{0xC2, 0xDF, 0x80, 0xBF},
                                            {0xE0, 0xE0, 0xA0, 0xBF, 0x80, 0xBF},
                                            {0xE1, 0xEC, 0x80, 0xBF, 0x80, 0xBF},
                                            {0xED, 0xED, 0x80, 0x9F, 0x80, 0xBF},
                                            {0xEE, 0xEF, 0x80, 0xBF, 0x80, 0xBF},
                                            {0xF0, 0xF0, 0x90, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
                                            {0xF1, 0xF3, 0x80, 0xBF, 0x80, 0xBF, 0x80, 0xBF},
                                            {0xF4, 0xF4, 0x80, 0x8F, 0x80, 0xBF, 0x80, 0xBF}};
    for (const auto& form : kForms) {
      Production production;
      for (int i = 0; i < 8 && form[i] != 0; i += 2) production.push_back({-1, form[i], form[i + 1]});
      add(rule, std::move(production));
    }
    return rule;
  }

  int start = 0;
  const std::vector<std::vector<Production>>& rules() const { return rules_; }

 private:
  std::vector<std::vector<Production>> rules_;
};

// Places are the dots of all productions, numbered. A set keeps its items in the order they came, which is the work
// list of its completion, and for every rule the items that wait for it.
class ReferenceRecogniser {
 public:
  explicit ReferenceRecogniser(const ReferenceGrammar& grammar) : start_(grammar.start) {
    for (size_t rule = 0; rule < grammar.rules().size(); ++rule) {
      std::vector<int>& starts = starts_.emplace_back();
      for (const ReferenceGrammar::Production& production : grammar.rules()[rule]) {
        starts.push_back(static_cast<int>(places_.size()));
        for (const ReferenceGrammar::Symbol& symbol : production)
          places_.push_back({static_cast<int>(rule), symbol.nonterminal, symbol.begin, symbol.end, false});
        places_.push_back({static_cast<int>(rule), -1, 0, 0, true});
      }
    }
    Set& first = begin_set(0);
    predict(first, 0, start_);
    complete(first, 0);
  }
  // Whether some text goes on with the byte; then it is read.
  bool push(uint8_t byte) {
    const size_t at = num_sets_;
    Set& next = begin_set(at);
    const Set& last = sets_[at - 1];
    for (const Item& item : last.items)
      if (const Place& place = places_[static_cast<size_t>(item.place)];
          !place.is_end && place.nonterminal < 0 && place.begin <= byte && byte <= place.end)
        add(next, {item.place + 1, item.origin});
    if (next.items.empty()) {
      pop();
      return false;
    }
    complete(next, at);
    return true;
  }
  void pop() { --num_sets_; }
  size_t num_bytes() const { return num_sets_ - 1; }
  bool accepts() const {
    return std::ranges::any_of(sets_[num_sets_ - 1].items, [&](const Item& item) {
      const Place& place = places_[static_cast<size_t>(item.place)];
      return place.is_end && place.rule == start_ && item.origin == 0;
    });
  }

 private:
  struct Place {
    int rule, nonterminal;  // -1: a range of bytes, or the end
    uint8_t begin, end;
    bool is_end;
  };
  struct Item {
    int place, origin;
  };
  struct Set {
    std::vector<Item> items;
    std::vector<int> first_waiting;    // by rule: an item, -1: none
    std::vector<int> next_waiting;     // by item: the one before it that waits for the same rule
    std::vector<bool> is_empty_match;  // by rule: completed where it began
  };

  Set& begin_set(size_t at) {
    if (at == sets_.size()) sets_.emplace_back();
    num_sets_ = at + 1;
    Set& set = sets_[at];
    set.items.clear();
    set.next_waiting.clear();
    set.first_waiting.assign(starts_.size(), -1);
    set.is_empty_match.assign(starts_.size(), false);
    ++number_;
    return set;
  }
  // Numbers of sets by place and origin: whether the set being made has the item.
  void add(Set& set, Item item) {
    const size_t column = static_cast<size_t>(item.origin);
    while (column >= had_.size()) had_.emplace_back(places_.size(), 0u);
    uint32_t& had = had_[column][static_cast<size_t>(item.place)];
    if (had == number_) return;
    had = number_;
    set.items.push_back(item);
    set.next_waiting.push_back(-1);
  }
  void predict(Set& set, size_t at, int rule) {
    for (const int place : starts_[static_cast<size_t>(rule)]) add(set, {place, static_cast<int>(at)});
  }
  void complete(Set& set, size_t at) {
    for (size_t i = 0; i < set.items.size(); ++i) {  // grows
      const Item item = set.items[i];
      const Place place = places_[static_cast<size_t>(item.place)];
      if (place.is_end) {
        const auto rule = static_cast<size_t>(place.rule);
        const auto origin = static_cast<size_t>(item.origin);
        if (origin == at) set.is_empty_match[rule] = true;
        const Set& from = sets_[origin];
        for (int waiting = from.first_waiting[rule]; waiting >= 0;
             waiting = from.next_waiting[static_cast<size_t>(waiting)]) {
          const Item before = from.items[static_cast<size_t>(waiting)];
          add(set, {before.place + 1, before.origin});
        }
      } else if (place.nonterminal >= 0) {
        const auto rule = static_cast<size_t>(place.nonterminal);
        const bool is_first = set.first_waiting[rule] < 0;
        set.next_waiting[i] = std::exchange(set.first_waiting[rule], static_cast<int>(i));
        if (is_first) predict(set, at, place.nonterminal);
        if (set.is_empty_match[rule]) add(set, {item.place + 1, item.origin});
      }
    }
  }

  const int start_;
  std::vector<Place> places_;
  std::vector<std::vector<int>> starts_;  // of a rule's productions
  std::deque<Set> sets_;                  // those beyond num_sets_ lend their memory
  size_t num_sets_ = 0;
  uint32_t number_ = 0;
  std::vector<std::vector<uint32_t>> had_;
};

}  // namespace deepinfer
