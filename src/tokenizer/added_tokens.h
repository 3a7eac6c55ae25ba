// SPDX-License-Identifier: MIT
// Finds added tokens in a text as the reference library does: first those with `normalized` false, leftmost, the
// longest of several at one place, then the others in what lies between. Immutable.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/token_trie.h"
#include "tokenizer/tokenizer_json.h"

namespace deepinfer {

class AddedTokens {
 public:
  struct Span {
    std::string_view text;
    TokenId id;  // -1: ordinary text
  };
  // `vocabulary` owns nothing here; the contents are copied.
  explicit AddedTokens(std::vector<TokenizerFile::Added> added);

  // The text in order, cut at added tokens; ordinary spans are not empty.
  std::vector<Span> split(std::string_view text) const;
  const std::vector<TokenizerFile::Added>& all() const { return added_; }

 private:
  struct Matcher {
    std::unique_ptr<TokenTrie> trie;
    std::vector<const TokenizerFile::Added*> tokens;  // by trie symbol
    bool starts[256] = {};                            // first bytes
  };
  static void split_with(const Matcher& matcher, std::string_view text, std::vector<Span>& out);

  std::vector<TokenizerFile::Added> added_;
  Matcher plain_, normalized_;
};

}  // namespace deepinfer
