// SPDX-License-Identifier: MIT
// A vocabulary arranged for masks: tries over token bytes in depth-first order, and the tokens that consist of nothing
// but ordinary characters of a JSON string, which need no walk at all. Control tokens are in no trie: text never makes
// one. Immutable; shared by all grammars of a tokenizer.
#pragma once

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
    uint8_t depth;  // bytes before this one; tokens are cut off at 255
    TokenId token;  // -1: none ends here
  };
  using Trie = std::vector<Node>;  // depth first, without the root

  explicit TokenIndex(std::shared_ptr<const Tokenizer> tokenizer);

  // Characters of plain tokens: all that may stand in a JSON string as themselves.
  static const CharSet& plain_chars();
  const Trie& all() const { return all_; }
  const Trie& not_plain() const { return not_plain_; }
  // Tokens whose first byte that is not plain is a quote: what follows the quote; a token list per node.
  const Trie& after_quote() const { return after_quote_; }
  const std::vector<TokenId>& quoted_tokens(TokenId list) const { return quoted_[static_cast<size_t>(list)]; }
  const std::vector<TokenId>& quote_ends() const { return quote_ends_; }  // nothing follows the quote
  const Trie& other() const { return other_; }                            // neither plain nor in after_quote
  const std::vector<uint32_t>& plain_mask() const { return plain_mask_; }
  int64_t vocab_size() const { return tokenizer_->vocab_size(); }
  size_t num_words() const { return plain_mask_.size(); }
  uint32_t token_bytes_max() const { return token_bytes_max_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Trie all_, not_plain_, after_quote_, other_;
  std::vector<std::vector<TokenId>> quoted_;
  std::vector<TokenId> quote_ends_;
  std::vector<uint32_t> plain_mask_;
  uint32_t token_bytes_max_ = 1;
};

}  // namespace deepinfer
