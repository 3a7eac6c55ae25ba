// SPDX-License-Identifier: MIT
// A part of a regex's automaton as tables, built while it is walked: one load a character for ASCII, one class a range
// for the rest. Belongs to one pool; not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/char_trie.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

class RegexWalk {
 public:
  explicit RegexWalk(RegexPool& pool) : pool_(pool) {}

  // Visits the nodes whose characters leave something of the language: found(node, regex that is left), the root too.
  // Ends early once goes_on() says no; it is asked where something new was worked out.
  template <typename Found, typename GoesOn>
  void walk(const CharTrie& trie, RegexId start, Found&& found, GoesOn&& goes_on) {
    walk(trie, start, std::forward<Found>(found), std::forward<GoesOn>(goes_on), NotWhole{});
  }
  // The same for a trie of plain characters; whole(node) instead where it is seen at once that all below the node are
  // to be found, too.
  template <typename Found, typename GoesOn, typename Whole>
  void walk(const CharTrie& trie, RegexId start, Found&& found, GoesOn&& goes_on, Whole&& whole);

  // How many plain characters (TokenIndex), whichever they are, may follow: a lower bound, as far as is seen in a few
  // states; RegexPool::kInfinite for any number.
  uint32_t num_safe(RegexId regex) {
    if (!pool_.has_text(regex)) return 0;
    num_looks_ = 0;
    return num_safe(*row_of(regex), 0, kWorthASearch);
  }

  size_t num_bytes() const { return rows_.size() * sizeof(Row); }

 private:
  static constexpr char32_t kAscii = 128;
  static constexpr size_t kRowsMax = 4096;
  static constexpr size_t kWorthALook = 4, kWorthASearch = 64;  // nodes of a subtree
  static constexpr size_t kSafeRowsMax = 64;                    // looked at in a search
  static constexpr uint64_t kLooksMax = 10'000;                 // of the searches of a walk, in units of work
  struct NotWhole {};
  struct Row;
  struct Class {
    char32_t end;  // of its code points; the class before it says where they begin
    Row* next;     // null: nothing is left
    bool is_known;
  };
  struct Row {
    RegexId regex = 0;
    int8_t has_wide = -1;  // live characters beyond ASCII: 0 no, 1 yes, -1 not known
    bool knows_safe = false;
    uint32_t num_safe = 0;  // plain characters of which any may follow
    uint32_t search = 0;    // the last one that met the row
    bool knows_absorbed = false;
    uint16_t absorbed_kinds = 0;     // CharTrie::kinds() of which any
    uint32_t num_absorbed = 0;       // characters in a row may come
    char32_t begin = 0, end = 0;     // the class met last
    Row* next = nullptr;             // of that class
    std::array<Row*, kAscii> ascii;  // unknown() until known
    std::vector<Class> classes;
  };
  Row* unknown() { return &unknown_; }
  Row* row_of(RegexId regex);
  Row* step(Row& row, char32_t c) {
    if (c < kAscii) {
      Row* const next = row.ascii[c];
      if (next != unknown()) return next;
    } else if (c >= row.begin && c < row.end) {
      return row.next;
    }
    return step_class(row, c);
  }
  Row* step_class(Row& row, char32_t c);
  Row* next_of(Row& row, size_t class_idx);
  bool has_wide(Row& row) { return row.has_wide >= 0 ? row.has_wide != 0 : find_wide(row); }
  bool find_wide(Row& row);
  void find_absorbed(Row& row);
  bool absorbs(Row& row, uint16_t kinds, uint32_t num_chars) {
    if (!row.knows_absorbed) find_absorbed(row);
    return (kinds & ~row.absorbed_kinds) == 0 && num_chars <= row.num_absorbed;
  }
  // `known`: a lower bound for the row. Searched for where `num_nodes` depend on it.
  uint32_t num_safe(Row& row, uint32_t known, size_t num_nodes) {
    if (!row.knows_safe && num_nodes >= kWorthASearch && num_looks_ < kLooksMax) find_safe(row);
    return std::max(known, row.num_safe);
  }
  void find_safe(Row& row);

  RegexPool& pool_;
  bool has_worked_ = false;  // since goes_on() was asked
  Row unknown_;
  std::vector<std::unique_ptr<Row>> rows_;
  std::unordered_map<RegexId, Row*> row_ids_;
  struct Level {
    Row* row;
    uint32_t end;  // of the subtree
    uint32_t num_safe;
  };
  std::vector<Level> path_;  // by depth
  uint64_t num_looks_ = 0;
  uint32_t search_ = 0;
};

template <typename Found, typename GoesOn, typename Whole>
void RegexWalk::walk(const CharTrie& trie, RegexId start, Found&& found, GoesOn&& goes_on,
                     [[maybe_unused]] Whole&& whole) {
  if (!pool_.has_text(start) || trie.nodes().empty()) return;
  if (rows_.size() > kRowsMax) {
    rows_.clear();
    row_ids_.clear();
  }
  const std::vector<CharTrie::Node>& nodes = trie.nodes();
  path_.resize(std::max(path_.size(), size_t{trie.depth_max()} + 1));
  path_[0] = {row_of(start), nodes[0].next, 0};
  num_looks_ = 0;
  found(size_t{0}, start);
  for (size_t i = 1; i < nodes.size();) {
    const CharTrie::Node& node = nodes[i];
    const Level& from = path_[node.depth - 1];
    // Siblings are sorted: beyond ASCII nothing may be left of all of them.
    if (node.c >= kAscii && !has_wide(*from.row)) {
      i = from.end;
      continue;
    }
    Row* const next = step(*from.row, node.c);
    if (has_worked_) {
      has_worked_ = false;
      if (!goes_on()) return;
    }
    if (next == nullptr) {
      i = node.next;
      continue;
    }
    uint32_t safe = 0;
    if constexpr (!std::is_same_v<std::decay_t<Whole>, NotWhole>) {
      safe = from.num_safe > 0 ? from.num_safe - 1 : 0;
      if (safe < node.height) safe = num_safe(*next, safe, node.next - i);
      if (safe >= node.height || (node.next - i >= kWorthALook && absorbs(*next, node.kinds, node.height))) {
        whole(i);
        i = node.next;
        continue;
      }
    }
    path_[node.depth] = {next, node.next, safe};
    found(i, next->regex);
    ++i;
  }
}

}  // namespace deepinfer
