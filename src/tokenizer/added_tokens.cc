// SPDX-License-Identifier: MIT
#include "tokenizer/added_tokens.h"

namespace deepinfer {

AddedTokens::AddedTokens(std::vector<TokenizerFile::Added> added) : added_(std::move(added)) {
  for (Matcher* matcher : {&plain_, &normalized_}) {
    std::vector<std::string_view> contents;
    for (const TokenizerFile::Added& token : added_) {
      if (token.normalized != (matcher == &normalized_)) continue;
      matcher->tokens.push_back(&token);
      matcher->starts[static_cast<uint8_t>(token.content[0])] = true;
      contents.push_back(token.content);
    }
    if (!contents.empty()) matcher->trie = std::make_unique<TokenTrie>(std::move(contents));
  }
}

std::vector<AddedTokens::Span> AddedTokens::split(std::string_view text) const {
  std::vector<Span> first, out;
  split_with(plain_, text, first);
  for (const Span& span : first) {
    if (span.id >= 0) out.push_back(span);
    else split_with(normalized_, span.text, out);
  }
  return out;
}

void AddedTokens::split_with(const Matcher& matcher, std::string_view text, std::vector<Span>& out) {
  size_t begin = 0;
  for (size_t at = 0; matcher.trie && at < text.size();) {
    const Symbol found =
        matcher.starts[static_cast<uint8_t>(text[at])] ? matcher.trie->longest(text.substr(at)).symbol : kNoSymbol;
    if (found == kNoSymbol) {
      ++at;
      continue;
    }
    if (at > begin) out.push_back({text.substr(begin, at - begin), -1});
    const TokenizerFile::Added& token = *matcher.tokens[found];
    out.push_back({text.substr(at, token.content.size()), token.id});
    at += token.content.size();
    begin = at;
  }
  if (begin < text.size()) out.push_back({text.substr(begin), -1});
}

}  // namespace deepinfer
