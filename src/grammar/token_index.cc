// SPDX-License-Identifier: MIT
#include "grammar/token_index.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/utf8.h"

namespace deepinfer {
namespace {

using Entry = std::pair<std::string_view, TokenId>;
constexpr size_t kShortBytes = 16, kTokenBytesMax = 255;

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

struct Plain {
  size_t bytes = 0;
  uint32_t chars = 0;
};

// The plain characters at the start; a cut-off code point ends them.
Plain plain_start(std::string_view text) {
  Plain plain;
  while (plain.bytes < text.size()) {
    const CodePoint c = decode_utf8(text.substr(plain.bytes));
    if (c.num_bytes == 0 || !TokenIndex::plain_chars().contains(c.value)) break;
    plain.bytes += c.num_bytes;
    ++plain.chars;
  }
  return plain;
}

}  // namespace

const CharSet& TokenIndex::plain_chars() {
  static const CharSet set = [] {
    CharSet special = CharSet::range(0, 0x20);
    special.add('"', '"' + 1);
    special.add('\\', '\\' + 1);
    special.add(0x2028, 0x202A);
    return special.complement();
  }();
  return set;
}

// The tokens of one tier, sorted into its tables.
struct TokenIndex::Entries {
  std::vector<Entry> all, not_plain, other, other_quoted;
  std::map<std::string_view, std::vector<TokenId>> by_suffix;
  std::map<uint32_t, std::vector<TokenId>> plain;  // by number of characters

  void add(std::string_view bytes, TokenId id, Tier& tier) {
    tier.token_bytes_max = std::max(tier.token_bytes_max, static_cast<uint32_t>(bytes.size()));
    all.emplace_back(bytes, id);
    const Plain start = plain_start(bytes);
    if (start.bytes == bytes.size()) {
      plain[start.chars].push_back(id);
      return;
    }
    not_plain.emplace_back(bytes, id);
    if (bytes[start.bytes] == '"') {
      by_suffix[bytes.substr(start.bytes + 1)].push_back(id);
      tier.chars_before_quote_max = std::max(tier.chars_before_quote_max, start.chars);
    } else {
      (bytes.find('"') == std::string_view::npos ? other : other_quoted).emplace_back(bytes, id);
    }
  }

  void finish(Tier& tier, size_t num_words) {
    std::vector<Entry> suffixes;
    for (auto& [suffix, ids] : by_suffix) {
      if (suffix.empty()) {
        tier.quote_ends = ids;
        continue;
      }
      suffixes.emplace_back(suffix, static_cast<TokenId>(tier.quoted.size()));
      tier.quoted.push_back(ids);
    }
    tier.all = trie_of(std::move(all));
    tier.not_plain = trie_of(std::move(not_plain));
    tier.other = trie_of(std::move(other));
    tier.other_quoted = trie_of(std::move(other_quoted));
    tier.after_quote = trie_of(std::move(suffixes));
    std::vector<uint32_t> row(num_words, 0);
    for (uint32_t n = 1; n <= (plain.empty() ? 1 : plain.rbegin()->first); ++n) {
      for (const TokenId id : plain[n]) row[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
      tier.plain_masks.push_back(row);
    }
  }
};

TokenIndex::TokenIndex(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {
  const int64_t num_ids = tokenizer_->vocab_size();
  num_words_ = static_cast<size_t>((num_ids + 31) / 32);
  std::array<Entries, 2> entries;
  for (TokenId id = 0; id < num_ids; ++id) {
    const std::string_view bytes = tokenizer_->token_bytes(id);
    if (bytes.empty() || bytes.size() > kTokenBytesMax || tokenizer_->is_control(id)) continue;
    const size_t tier = bytes.size() <= kShortBytes ? 0 : 1;
    entries[tier].add(bytes, id, tiers_[tier]);
  }
  for (size_t i = 0; i < 2; ++i) entries[i].finish(tiers_[i], num_words_);
}

}  // namespace deepinfer
