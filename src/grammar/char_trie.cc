// SPDX-License-Identifier: MIT
#include "grammar/char_trie.h"

#include <algorithm>
#include <tuple>

namespace deepinfer {

CharTrie::CharTrie(std::vector<Entry> entries) {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.chars, a.end.rest, a.end.token) < std::tie(b.chars, b.end.rest, b.end.token);
  });
  nodes_.push_back({});
  size_t at = 0;
  while (at < entries.size() && entries[at].chars.empty()) ends_.push_back(entries[at++].end);
  append_children(entries, at, entries.size(), 0);
  nodes_[0].next = static_cast<uint32_t>(nodes_.size());
}

// Depth is bounded by the characters of a token.
void CharTrie::append_children(const std::vector<Entry>& entries, size_t begin, size_t end, uint32_t depth) {
  depth_max_ = std::max(depth_max_, depth);
  while (begin < end) {
    const char32_t c = entries[begin].chars[depth];
    size_t stop = begin;
    while (stop < end && entries[stop].chars[depth] == c) ++stop;
    const size_t at = nodes_.size();
    nodes_.push_back({0, c, depth + 1, static_cast<uint32_t>(ends_.size())});
    while (begin < stop && entries[begin].chars.size() == depth + 1) ends_.push_back(entries[begin++].end);
    append_children(entries, begin, stop, depth + 1);
    nodes_[at].next = static_cast<uint32_t>(nodes_.size());
    begin = stop;
  }
}

}  // namespace deepinfer
