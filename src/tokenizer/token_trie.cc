// SPDX-License-Identifier: MIT
// Cells are placed in blocks of 256, the reach of `base ^ byte`. A node takes the first base of an open block whose
// cells are free; a block that refuses too often is closed, which bounds the work per node. In a block that stays
// partly empty the free cells get a tag that no base of the block can ask for.
#include "tokenizer/token_trie.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <numeric>

namespace deepinfer {

class TokenTrie::Builder {
 public:
  explicit Builder(TokenTrie& trie) : trie_(trie), tokens_(trie.tokens_) {}

  void build() {
    for (Symbol symbol = 0; symbol < tokens_.size(); ++symbol)
      if (!tokens_[symbol].empty()) sorted_.push_back({head_of(tokens_[symbol]), symbol});
    std::sort(sorted_.begin(), sorted_.end(), [this](const Key& a, const Key& b) {
      return a.head != b.head ? a.head < b.head : tokens_[a.symbol] < tokens_[b.symbol];
    });
    trie_.root_ = add_node(0, sorted_.size(), 0, kNoSymbol);
    while (!pending_.empty()) {
      const Pending node = pending_.back();
      pending_.pop_back();
      // The first token of the range ends at this node when it is no longer than the depth.
      const bool has_token = tokens_[sorted_[node.begin].symbol].size() == node.depth;
      const Symbol own = has_token ? sorted_[node.begin].symbol : kNoSymbol;
      const uint32_t base = add_node(node.begin + has_token, node.end, node.depth, has_token ? own : node.prefix);
      Cell& cell = trie_.cells_[node.cell];
      cell = {base, (cell.tag >> kByteShift << kByteShift) | (has_token ? own : kSymbolMask)};
    }
    fill_free_cells();
  }

 private:
  struct Key {
    uint64_t head;  // first eight bytes, big-endian, for a quick sort
    Symbol symbol;
  };
  struct Pending {
    size_t begin, end, depth;  // tokens in sorted_ that share the first `depth` bytes
    Symbol prefix;             // longest token among their proper prefixes, so far
    uint32_t cell;             // the branch that leads here
  };
  struct Block {
    std::bitset<256> cells, bases;
    int num_refusals = 0;
  };
  static constexpr int kRefusalsMax = 8;
  static constexpr size_t kBytesLeftMax = 255;  // what a cell can count

  static uint64_t head_of(std::string_view bytes) {
    uint64_t head = 0;
    for (size_t i = 0; i < 8; ++i) head = head << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0);
    return head;
  }

  // Places the branches of the tokens [begin, end), which are longer than `depth`; returns the node's base.
  uint32_t add_node(size_t begin, size_t end, size_t depth, Symbol prefix) {
    children_.clear();
    for (size_t i = begin; i < end;) {
      const uint8_t byte = byte_at(i, depth);
      size_t next = i + 1;
      while (next < end && byte_at(next, depth) == byte) ++next;
      children_.push_back({byte, i, next});
      i = next;
    }
    const uint32_t base = place();
    for (const Child& child : children_) {
      const uint32_t at = base ^ child.byte;
      Cell& cell = trie_.cells_[at];
      const Symbol symbol = sorted_[child.begin].symbol;
      cell = single(child.byte, symbol, depth + 1);
      if (child.end - child.begin == 1 && tokens_[symbol].size() - depth - 1 <= kBytesLeftMax)
        trie_.prefixes_[symbol] = prefix;
      else push(child, depth + 1, prefix, at);
    }
    return base;
  }

  struct Child {
    uint8_t byte;
    size_t begin, end;
  };

  Cell single(uint8_t byte, Symbol symbol, size_t depth) const {
    const std::string_view left = tokens_[symbol].substr(depth);
    uint32_t packed = static_cast<uint32_t>(left.size()) << kByteShift;
    for (size_t i = 0; left.size() <= kInlineBytes && i < left.size(); ++i)
      packed |= static_cast<uint32_t>(static_cast<uint8_t>(left[i])) << (8 * i);
    return {packed, static_cast<uint32_t>(byte) << kByteShift | kSingle | symbol};
  }

  void push(const Child& child, size_t depth, Symbol prefix, uint32_t cell) {
    const Symbol first = sorted_[child.begin].symbol;
    if (tokens_[first].size() == depth) trie_.prefixes_[first] = prefix;
    pending_.push_back({child.begin, child.end, depth, prefix, cell});
  }

  uint8_t byte_at(size_t i, size_t depth) const { return static_cast<uint8_t>(tokens_[sorted_[i].symbol][depth]); }

  uint32_t place() {
    for (size_t i = 0; i < open_.size();) {
      Block& block = blocks_[open_[i]];
      if (const int low = free_base(block); low >= 0) return take(open_[i], low);
      if (++block.num_refusals < kRefusalsMax) {
        ++i;
        continue;
      }
      open_[i] = open_.back();
      open_.pop_back();
    }
    blocks_.emplace_back();
    trie_.cells_.resize(blocks_.size() * 256, {0, 0});
    open_.push_back(blocks_.size() - 1);
    return take(blocks_.size() - 1, free_base(blocks_.back()));
  }

  // Lower eight bits of a base whose cells are all free in the block, or -1. Tried are the bases that put the first
  // branch into a free cell.
  int free_base(const Block& block) const {
    const std::bitset<256> free_cells = ~block.cells;
    for (size_t cell = free_cells._Find_first(); cell < 256; cell = free_cells._Find_next(cell)) {
      const size_t low = cell ^ children_[0].byte;
      if (block.bases[low]) continue;
      const auto is_free = [&](const Child& child) { return !block.cells[low ^ child.byte]; };
      if (std::all_of(children_.begin() + 1, children_.end(), is_free)) return static_cast<int>(low);
    }
    return -1;
  }

  uint32_t take(size_t block, int low) {
    blocks_[block].bases.set(low);
    for (const Child& child : children_) blocks_[block].cells.set(low ^ child.byte);
    return static_cast<uint32_t>(block * 256 + low);
  }

  // Every node has a branch, so a block with a free cell has a base that no node uses: the cell names the byte that
  // only this base would ask for.
  void fill_free_cells() {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      int unused = 0;
      while (unused < 256 && blocks_[b].bases[unused]) ++unused;
      for (int low = 0; low < 256; ++low)
        if (!blocks_[b].cells[low])
          trie_.cells_[b * 256 + low] = {0, static_cast<uint32_t>(low ^ unused) << kByteShift | kSymbolMask};
    }
  }

  TokenTrie& trie_;
  const std::vector<std::string_view>& tokens_;
  std::vector<Key> sorted_;
  std::vector<Pending> pending_;
  std::vector<Child> children_;
  std::vector<Block> blocks_;
  std::vector<size_t> open_;
};

TokenTrie::TokenTrie(std::vector<std::string_view> tokens)
    : tokens_(std::move(tokens)), prefixes_(tokens_.size(), kNoSymbol) {
  Builder(*this).build();
}

}  // namespace deepinfer
