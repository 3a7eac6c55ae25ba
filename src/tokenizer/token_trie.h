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
  // tokens[symbol] is the byte string of a symbol, empty = not in the trie. The views must stay valid.
  explicit TokenTrie(std::vector<std::string_view> tokens);

  // The longest token that `text` begins with; kNoSymbol when there is none.
  Symbol longest(std::string_view text) const {
    Symbol best = kNoSymbol;
    uint32_t base = root_;
    for (size_t depth = 0; depth < text.size(); ++depth) {
      const uint8_t byte = static_cast<uint8_t>(text[depth]);
      const Cell cell = cells_[base ^ byte];
      if (cell.tag >> kSymbolBits != byte) return best;
      const Symbol symbol = cell.tag & kSymbolMask;
      if (cell.base == 0) return ends_with(symbol, text, depth + 1) ? symbol : best;
      if (symbol != kSymbolMask) best = symbol;
      base = cell.base;
    }
    return best;
  }
  size_t num_bytes(Symbol symbol) const { return tokens_[symbol].size(); }
  // The longest proper prefix of the token that is itself a token; kNoSymbol when there is none.
  Symbol prefix(Symbol symbol) const { return prefixes_[symbol]; }
  size_t num_cells() const { return cells_.size(); }

 private:
  static constexpr int kSymbolBits = 24;
  static constexpr uint32_t kSymbolMask = (1u << kSymbolBits) - 1;
  // cells_[base ^ byte] of a node: the branch for that byte when the upper bits of its tag are the byte. A base belongs
  // to one node only, so the byte is all there is to check.
  struct Cell {
    uint32_t base;  // of the node behind the branch; 0 = a single token, whose remaining bytes are compared
    uint32_t tag;   // byte, then the token that ends here (or the single token); kSymbolMask = none
  };
  class Builder;

  bool ends_with(Symbol symbol, std::string_view text, size_t matched) const {
    const std::string_view token = tokens_[symbol];
    return token.size() <= text.size() &&
           std::memcmp(token.data() + matched, text.data() + matched, token.size() - matched) == 0;
  }

  std::vector<std::string_view> tokens_;
  std::vector<Symbol> prefixes_;
  std::vector<Cell> cells_;
  uint32_t root_ = 0;
};

}  // namespace deepinfer
