// SPDX-License-Identifier: MIT
// Longest token at the start of a text: a double-array trie over token bytes. A branch that holds a single token ends
// at once, and the rest of that token is compared as bytes, so only real branchings take cells. Immutable; views the
// bytes it was built from.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tokenizer/merge_table.h"

namespace deepinfer {

class TokenTrie {
 public:
  // tokens[symbol] is the byte string of a symbol, empty = not in the trie. The views must stay valid. Preconditions:
  // tokens are distinct, symbols below 2^23 - 1.
  explicit TokenTrie(std::vector<std::string_view> tokens);

  struct Match {
    Symbol symbol = kNoSymbol;  // kNoSymbol: no token
    size_t num_bytes = 0;
  };
  // The longest token that `text` begins with.
  Match longest(std::string_view text) const {
    Match best;
    uint32_t base = root_;
    for (size_t depth = 0; depth < text.size();) {
      const uint8_t byte = static_cast<uint8_t>(text[depth]);
      const Cell cell = cells_[base ^ byte];
      if (cell.tag >> kByteShift != byte) return best;
      ++depth;
      const Symbol symbol = cell.tag & kSymbolMask;
      if ((cell.tag & kSingle) != 0) {
        const size_t num_left = cell.base >> kByteShift;
        return continues(cell, symbol, text, depth) ? Match{symbol, depth + num_left} : best;
      }
      if (symbol != kSymbolMask) best = {symbol, depth};
      base = cell.base;
    }
    return best;
  }
  size_t num_bytes(Symbol symbol) const { return tokens_[symbol].size(); }
  // The longest token that is a proper prefix of `symbol`.
  Match shorter(Symbol symbol) const {
    const Symbol prefix = prefixes_[symbol];
    return prefix == kNoSymbol ? Match{} : Match{prefix, tokens_[prefix].size()};
  }
  size_t num_cells() const { return cells_.size(); }

 private:
  static constexpr int kByteShift = 24;
  static constexpr uint32_t kSingle = 1u << 23;
  static constexpr uint32_t kSymbolMask = kSingle - 1;
  static constexpr size_t kInlineBytes = 3;
  // cells_[base ^ byte] of a node: the branch for that byte when the upper bits of its tag are the byte. A base belongs
  // to one node only, so the byte is all there is to check.
  struct Cell {
    uint32_t base;  // of the node behind the branch; kSingle: number of bytes left (upper byte), the bytes if they are
                    // three at most
    uint32_t tag;   // byte, kSingle when one token is all there is, token that ends here; kSymbolMask = none
  };
  class Builder;

  // Whether the rest of a single token follows at `at`. Touches nothing but the cell and the text for up to three
  // bytes.
  bool continues(Cell cell, Symbol symbol, std::string_view text, size_t at) const {
    const size_t num_left = cell.base >> kByteShift;
    if (text.size() - at < num_left) return false;
    if (num_left > kInlineBytes) return std::memcmp(tokens_[symbol].data() + at, text.data() + at, num_left) == 0;
    for (size_t i = 0; i < num_left; ++i)
      if (static_cast<uint8_t>(text[at + i]) != ((cell.base >> (8 * i)) & 0xFF)) return false;
    return true;
  }

  std::vector<std::string_view> tokens_;
  std::vector<Symbol> prefixes_;
  std::vector<Cell> cells_;
  uint32_t root_ = 0;
};

}  // namespace deepinfer
