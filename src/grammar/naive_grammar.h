// SPDX-License-Identifier: MIT
// Test only: random small languages, each written as EBNF, as a regular expression or as a JSON Schema, beside a
// recogniser that shares nothing with the engine: a textbook Earley parser over bytes (Earley 1970) on an unrolled
// context-free grammar, without caches, automata or tricks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer {

class NaiveGrammar {
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

class NaiveRecogniser {
 public:
  explicit NaiveRecogniser(const NaiveGrammar& grammar) : grammar_(grammar) {
    sets_.emplace_back();
    predict(0, grammar.start);
    close(0);
  }
  // Whether some text goes on with the byte; then it is read.
  bool push(uint8_t byte) {
    std::set<Item> next;
    for (const Item& item : sets_.back())
      if (const NaiveGrammar::Symbol* symbol = after_dot(item);
          symbol != nullptr && symbol->nonterminal < 0 && symbol->begin <= byte && byte <= symbol->end)
        next.insert({item.rule, item.production, item.dot + 1, item.origin});
    if (next.empty()) return false;
    sets_.push_back(std::move(next));
    close(sets_.size() - 1);
    return true;
  }
  void pop() { sets_.pop_back(); }
  size_t num_bytes() const { return sets_.size() - 1; }
  bool accepts() const {
    return std::ranges::any_of(sets_.back(), [&](const Item& item) {
      return item.rule == grammar_.start && item.origin == 0 && after_dot(item) == nullptr;
    });
  }

 private:
  struct Item {
    int rule, production, dot, origin;
    auto operator<=>(const Item&) const = default;
  };
  const NaiveGrammar::Symbol* after_dot(const Item& item) const {
    const auto& production = grammar_.rules()[static_cast<size_t>(item.rule)][static_cast<size_t>(item.production)];
    return static_cast<size_t>(item.dot) < production.size() ? &production[static_cast<size_t>(item.dot)] : nullptr;
  }
  void predict(size_t at, int rule) {
    for (size_t p = 0; p < grammar_.rules()[static_cast<size_t>(rule)].size(); ++p)
      sets_[at].insert({rule, static_cast<int>(p), 0, static_cast<int>(at)});
  }
  void close(size_t at) {
    for (bool changed = true; changed;) {
      const size_t before = sets_[at].size();
      for (const Item& item : std::vector<Item>(sets_[at].begin(), sets_[at].end())) {
        const NaiveGrammar::Symbol* symbol = after_dot(item);
        if (symbol != nullptr) {
          if (symbol->nonterminal >= 0) predict(at, symbol->nonterminal);
          continue;
        }
        for (const Item& waiting : std::vector<Item>(sets_[static_cast<size_t>(item.origin)].begin(),
                                                     sets_[static_cast<size_t>(item.origin)].end()))
          if (const NaiveGrammar::Symbol* wanted = after_dot(waiting);
              wanted != nullptr && wanted->nonterminal == item.rule)
            sets_[at].insert({waiting.rule, waiting.production, waiting.dot + 1, waiting.origin});
      }
      changed = sets_[at].size() != before;
    }
  }

  const NaiveGrammar& grammar_;
  std::vector<std::set<Item>> sets_;
};

}  // namespace deepinfer
