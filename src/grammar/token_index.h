// SPDX-License-Identifier: MIT
// A vocabulary arranged for masks: tries over token bytes in depth-first order, and the tokens that consist of nothing
// but ordinary characters of a JSON string, which need no walk. Long tokens are kept apart (tier 1): counters matter to
// short tokens near their end only, so the short tokens' masks are shared by more states. Control tokens are in no
// trie: text never makes one. Immutable; shared by all grammars of a tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "grammar/char_set.h"
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
    Trie not_plain;
    // Tokens whose first byte that is not plain is a quote: what follows the quote, a list of tokens per node.
    Trie after_quote;
    std::vector<std::vector<TokenId>> quoted;
    std::vector<TokenId> quote_ends;  // nothing follows the quote
    uint32_t chars_before_quote_max = 0;
    Trie other;         // neither plain nor quoted, and no quote anywhere: where the string ends does not matter
    Trie other_quoted;  // the rest
    // [n - 1]: plain tokens of up to n characters, as a row.
    std::vector<std::vector<uint32_t>> plain_masks;
  };

  explicit TokenIndex(std::shared_ptr<const Tokenizer> tokenizer);

  // Characters of plain tokens: those that stand in a JSON string as themselves and match `.` in any dialect.
  static const CharSet& plain_chars();
  const std::array<Tier, 2>& tiers() const { return tiers_; }
  int64_t vocab_size() const { return tokenizer_->vocab_size(); }
  size_t num_words() const { return num_words_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  struct Entries;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::array<Tier, 2> tiers_;
  size_t num_words_ = 0;
};

}  // namespace deepinfer
