// SPDX-License-Identifier: MIT
#include "grammar/char_trie.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "grammar/token_index.h"

namespace deepinfer {
namespace {

uint16_t kind_bit(char32_t c) {
  size_t kind = 0;
  while (kind + 1 < CharTrie::kNumKinds && !CharTrie::kinds()[kind].contains(c)) ++kind;
  return static_cast<uint16_t>(1u << kind);
}

}  // namespace

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

const std::array<CharSet, CharTrie::kNumKinds>& CharTrie::kinds() {
  static const auto all = [] {
    static constexpr char32_t kSpans[kNumKinds - 2][2] = {{'a', 'g'},        {'g', '{'},
                                                          {'A', 'G'},        {'G', '['},
                                                          {'0', ':'},        {'_', '`'},
                                                          {'-', '.'},        {' ', '!'},
                                                          {'.', '/'},        {0x80, 0x250},
                                                          {0x250, 0x2E80},   {0x2E80, 0xE000},
                                                          {0xE000, 0x10000}, {0x10000, CharSet::kEnd}};
    std::array<CharSet, kNumKinds> sets;
    CharSet named;
    const CharSet plain = TokenIndex::plain_chars();
    for (size_t i = 0; i < std::size(kSpans); ++i) {
      sets[i] = CharSet::range(kSpans[i][0], kSpans[i][1]).intersection(plain);
      named.add(sets[i]);
    }
    sets[kNumKinds - 2] = named.complement().intersection(plain);
    sets[kNumKinds - 1] = plain.complement();
    return sets;
  }();
  return all;
}

// Depth is bounded by the characters of a token. Height and kinds of the parent are those of what is appended.
void CharTrie::append_children(const std::vector<Entry>& entries, size_t begin, size_t end, size_t parent) {
  const uint8_t depth = nodes_[parent].depth;
  CHECK(depth < UINT8_MAX || begin == end);
  depth_max_ = std::max<uint32_t>(depth_max_, depth);
  while (begin < end) {
    const char32_t c = entries[begin].chars[depth];
    size_t stop = begin;
    while (stop < end && entries[stop].chars[depth] == c) ++stop;
    const size_t at = nodes_.size();
    nodes_.push_back({0, c, static_cast<uint8_t>(depth + 1), 0, 0, static_cast<uint32_t>(ends_.size())});
    while (begin < stop && entries[begin].chars.size() == depth + 1u) ends_.push_back(entries[begin++].end);
    append_children(entries, begin, stop, at);
    nodes_[at].next = static_cast<uint32_t>(nodes_.size());
    nodes_[parent].kinds |= nodes_[at].kinds | kind_bit(c);
    nodes_[parent].height = std::max<uint8_t>(nodes_[parent].height, static_cast<uint8_t>(nodes_[at].height + 1));
    begin = stop;
  }
}

}  // namespace deepinfer
