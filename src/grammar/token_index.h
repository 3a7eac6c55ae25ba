// SPDX-License-Identifier: MIT
// A vocabulary arranged for masks: tries over token bytes in depth-first order and over the characters they stand for,
// and the tokens that consist of nothing but ordinary characters of a JSON string, which need no walk. Long tokens are
// kept apart (tier 1): counters matter to short tokens near their end only, so the short tokens' masks are shared by
// more states. Control tokens are in no trie: text never makes one. Immutable; shared by all grammars of a tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "grammar/char_set.h"
#include "grammar/char_trie.h"
#include "grammar/string_scan.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

class TokenIndex {
 public:
  struct Node {
    uint32_t next;  // node after this subtree
    uint8_t byte;
    uint8_t depth;  // bytes before this one
    TokenId token;  // -1: none ends here
  };
  using Trie = std::vector<Node>;  // depth first, without the root

  struct Tier {
    uint32_t token_bytes_max = 0;
    Trie all;
    // Tokens from between two characters of a JSON string, as the characters they stand for. In `plain` all are plain;
    // in `rest` some are not, and an End's rest names the tail (tails()) where the last character is cut off.
    CharTrie plain, rest;
    // Tokens with the string's closing quote behind these characters. An End's rest: what follows, or -1 for nothing.
    CharTrie closing;
    CharTrie closing_rest;  // those with a character that is not plain
    // What follows a quote, with the tokens that have plain characters before it.
    Trie after_quote;
    std::vector<std::vector<TokenId>> quoted;
    std::vector<TokenId> quote_ends;  // nothing follows the quote
    uint32_t chars_before_quote_max = 0;
    // Tokens as characters of text outside JSON; an End's rest as in `rest`.
    CharTrie raw;
    // [n - 1]: plain tokens of up to n characters, as a row.
    std::vector<std::vector<uint32_t>> plain_masks;
  };

  explicit TokenIndex(std::shared_ptr<const Tokenizer> tokenizer);

  // Characters of plain tokens: those that stand in a JSON string as themselves and match `.` in any dialect.
  static const CharSet& plain_chars();
  const std::array<Tier, 2>& tiers() const { return tiers_; }
  const std::vector<CharScan>& tails() const { return tails_; }
  int64_t vocab_size() const { return tokenizer_->vocab_size(); }
  size_t num_words() const { return num_words_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  struct Entries;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::array<Tier, 2> tiers_;
  std::vector<CharScan> tails_;
  size_t num_words_ = 0;
};

}  // namespace deepinfer
