// SPDX-License-Identifier: MIT
#include "grammar/token_index.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/utf8.h"

namespace deepinfer {
namespace {

using Entry = std::pair<std::string_view, TokenId>;
constexpr size_t kTokenBytesMax = 255;

void append_subtree(const std::vector<Entry>& entries, size_t begin, size_t end, size_t depth, TokenIndex::Trie& trie) {
  while (begin < end) {
    const auto byte = static_cast<uint8_t>(entries[begin].first[depth]);
    size_t stop = begin;
    while (stop < end && static_cast<uint8_t>(entries[stop].first[depth]) == byte) ++stop;
    const size_t at = trie.size();
    trie.push_back({0, byte, static_cast<uint8_t>(depth), -1});
    if (entries[begin].first.size() == depth + 1) trie[at].token = entries[begin++].second;
    append_subtree(entries, begin, stop, depth + 1, trie);
    trie[at].next = static_cast<uint32_t>(trie.size());
    begin = stop;
  }
}

TokenIndex::Trie trie_of(std::vector<Entry> entries) {
  std::ranges::sort(entries);
  TokenIndex::Trie trie;
  append_subtree(entries, 0, entries.size(), 0, trie);
  return trie;
}

// Bytes of plain characters at the start; a cut-off code point ends them.
size_t plain_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text.substr(at));
    if (c.num_bytes == 0 || !TokenIndex::plain_chars().contains(c.value)) break;
    at += c.num_bytes;
  }
  return at;
}

}  // namespace

const CharSet& TokenIndex::plain_chars() {
  static const CharSet set = [] {
    CharSet special = CharSet::range(0, 0x20);
    special.add('"', '"' + 1);
    special.add('\\', '\\' + 1);
    return special.complement();
  }();
  return set;
}

TokenIndex::TokenIndex(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {
  const int64_t num_ids = tokenizer_->vocab_size();
  plain_mask_.assign(static_cast<size_t>((num_ids + 31) / 32), 0);
  std::vector<Entry> all, not_plain, other, suffixes;
  std::map<std::string_view, std::vector<TokenId>> by_suffix;
  for (TokenId id = 0; id < num_ids; ++id) {
    const std::string_view bytes = tokenizer_->token_bytes(id);
    if (bytes.empty() || bytes.size() > kTokenBytesMax || tokenizer_->is_control(id)) continue;
    token_bytes_max_ = std::max(token_bytes_max_, static_cast<uint32_t>(bytes.size()));
    all.emplace_back(bytes, id);
    const size_t plain = plain_bytes(bytes);
    if (plain == bytes.size()) {
      plain_mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
      continue;
    }
    not_plain.emplace_back(bytes, id);
    if (bytes[plain] == '"') by_suffix[bytes.substr(plain + 1)].push_back(id);
    else other.emplace_back(bytes, id);
  }
  for (auto& [suffix, ids] : by_suffix) {
    if (suffix.empty()) {
      quote_ends_ = ids;
      continue;
    }
    suffixes.emplace_back(suffix, static_cast<TokenId>(quoted_.size()));
    quoted_.push_back(ids);
  }
  all_ = trie_of(std::move(all));
  not_plain_ = trie_of(std::move(not_plain));
  other_ = trie_of(std::move(other));
  after_quote_ = trie_of(std::move(suffixes));
}

}  // namespace deepinfer
