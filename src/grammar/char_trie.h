// SPDX-License-Identifier: MIT
// Tokens as the characters they write: a trie over code points, so that what a vocabulary spells in many bytes costs an
// automaton over characters one step. Immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "grammar/char_set.h"

namespace deepinfer {

class CharTrie {
 public:
  // What stands at a node: a token of exactly these characters and then `rest` (the owner's meaning; -1: nothing).
  struct End {
    TokenId token;
    int32_t rest;
  };
  struct Node {
    uint32_t next = 0;  // node after this subtree
    char32_t c = 0;
    uint8_t depth = 0;   // characters up to here; the root, node 0, has none
    uint8_t height = 0;  // characters below at most
    uint16_t kinds = 0;  // of the characters below
    uint32_t ends = 0;   // first of its ends
  };
  // Characters in groups that patterns tend to take or leave as a whole. Every character is in one of them.
  static constexpr size_t kNumKinds = 16;
  static const std::array<CharSet, kNumKinds>& kinds();

  struct Entry {
    std::u32string chars;
    End end;
  };

  CharTrie() = default;
  explicit CharTrie(std::vector<Entry> entries);

  const std::vector<Node>& nodes() const { return nodes_; }
  std::span<const End> ends(size_t node) const {
    const size_t stop = node + 1 < nodes_.size() ? nodes_[node + 1].ends : ends_.size();
    return std::span(ends_).subspan(nodes_[node].ends, stop - nodes_[node].ends);
  }
  // Of the node and all below it.
  std::span<const End> all_ends(size_t node) const {
    const size_t next = nodes_[node].next, stop = next < nodes_.size() ? nodes_[next].ends : ends_.size();
    return std::span(ends_).subspan(nodes_[node].ends, stop - nodes_[node].ends);
  }
  uint32_t depth_max() const { return depth_max_; }

 private:
  void append_children(const std::vector<Entry>& entries, size_t begin, size_t end, size_t parent);
  std::vector<Node> nodes_;
  std::vector<End> ends_;
  uint32_t depth_max_ = 0;
};

}  // namespace deepinfer
