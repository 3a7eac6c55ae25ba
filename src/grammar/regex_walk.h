// SPDX-License-Identifier: MIT
// A part of a regex's automaton as tables, built while it is walked: one load a character for ASCII, one class a range
// for the rest. Belongs to one pool; not thread-safe.
#pragma once

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
  // The same; whole(node) instead where it is seen at once that all below the node are to be found, too.
  template <typename Found, typename GoesOn, typename Whole>
  void walk(const CharTrie& trie, RegexId start, Found&& found, GoesOn&& goes_on, Whole&& whole);

  size_t num_bytes() const { return rows_.size() * sizeof(Row); }

 private:
  static constexpr char32_t kAscii = 128;
  static constexpr size_t kRowsMax = 4096;
  static constexpr size_t kWorthALook = 4;  // nodes of a subtree
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

  RegexPool& pool_;
  bool has_worked_ = false;  // since goes_on() was asked
  Row unknown_;
  std::vector<std::unique_ptr<Row>> rows_;
  std::unordered_map<RegexId, Row*> row_ids_;
  struct Level {
    Row* row;
    uint32_t end;  // of the subtree
  };
  std::vector<Level> path_;  // by depth
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
  path_[0] = {row_of(start), nodes[0].next};
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
    if constexpr (!std::is_same_v<std::decay_t<Whole>, NotWhole>) {
      if (node.next - i >= kWorthALook && absorbs(*next, node.kinds, trie.depth_max() - node.depth)) {
        whole(i);
        i = node.next;
        continue;
      }
    }
    path_[node.depth] = {next, node.next};
    found(i, next->regex);
    ++i;
  }
}

}  // namespace deepinfer
