// SPDX-License-Identifier: MIT
#include "grammar/token_index.h"

#include <algorithm>
#include <map>
#include <string>

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

// A token read from between two characters on.
struct Reading {
  bool is_possible = true, has_quote = false;
  std::u32string chars;
  size_t bytes_read = 0;  // up to and with the quote
  CharScan tail;          // kPartial: the last character is cut off
};

template <typename Scan>
Reading read_token(std::string_view bytes, Scan&& scan) {
  Reading reading;
  uint32_t phase = kPhaseStart;
  for (const char byte : bytes) {
    ++reading.bytes_read;
    const CharScan step = scan(phase, static_cast<uint8_t>(byte));
    reading.tail = {};
    phase = kPhaseStart;
    if (step.result == CharScan::Result::kChar) {
      reading.chars.push_back(step.begin);
    } else if (step.result == CharScan::Result::kPartial) {
      reading.tail = step;
      phase = step.phase;
    } else {
      reading.has_quote = step.result == CharScan::Result::kQuote;
      reading.is_possible = reading.has_quote;
      break;
    }
  }
  return reading;
}

bool is_plain(std::u32string_view chars) {
  return std::ranges::all_of(chars, [](char32_t c) { return TokenIndex::plain_chars().contains(c); });
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
  std::vector<Entry> all;
  std::vector<CharTrie::Entry> plain_chars, rest, closing, closing_rest, raw;
  std::map<std::string_view, std::vector<TokenId>> by_suffix;  // plain characters before the quote
  std::map<std::string_view, std::vector<CharTrie::Entry>> closing_by_suffix;
  std::map<uint32_t, std::vector<TokenId>> plain;  // by number of characters

  void add(std::string_view bytes, TokenId id, Tier& tier, std::vector<CharScan>& tails) {
    tier.token_bytes_max = std::max(tier.token_bytes_max, static_cast<uint32_t>(bytes.size()));
    all.emplace_back(bytes, id);
    Reading text = read_token(bytes, scan_raw);
    if (text.is_possible) raw.push_back({std::move(text.chars), {id, tail_of(text.tail, tails)}});
    Reading string = read_token(bytes, scan_json_string);
    if (!string.is_possible) return;
    const bool plain_only = is_plain(string.chars);
    if (string.has_quote) {
      const std::string_view suffix = bytes.substr(string.bytes_read);
      if (plain_only) {
        tier.chars_before_quote_max = std::max(tier.chars_before_quote_max, static_cast<uint32_t>(string.chars.size()));
      }
      std::vector<TokenId>& quoted = by_suffix[suffix];
      if (plain_only) quoted.push_back(id);
      closing_by_suffix[suffix].push_back({std::move(string.chars), {id, -1}});
      return;
    }
    const int32_t tail = tail_of(string.tail, tails);
    if (plain_only && tail < 0) {
      plain[static_cast<uint32_t>(string.chars.size())].push_back(id);
      plain_chars.push_back({std::move(string.chars), {id, -1}});
    } else {
      rest.push_back({std::move(string.chars), {id, tail}});
    }
  }

  static int32_t tail_of(const CharScan& tail, std::vector<CharScan>& tails) {
    if (tail.result != CharScan::Result::kPartial) return -1;
    for (size_t i = 0; i < tails.size(); ++i)
      if (tails[i].begin == tail.begin && tails[i].end == tail.end && tails[i].is_escape == tail.is_escape)
        return static_cast<int32_t>(i);
    tails.push_back(tail);
    return static_cast<int32_t>(tails.size() - 1);
  }

  void finish(Tier& tier, size_t num_words) {
    std::vector<Entry> suffixes;
    for (auto& [suffix, ids] : by_suffix) {
      int32_t number = -1;
      if (suffix.empty()) {
        tier.quote_ends = ids;
      } else {
        number = static_cast<int32_t>(tier.quoted.size());
        suffixes.emplace_back(suffix, static_cast<TokenId>(number));
        tier.quoted.push_back(ids);
      }
      for (CharTrie::Entry& entry : closing_by_suffix[suffix]) {
        entry.end.rest = number;
        if (!is_plain(entry.chars)) closing_rest.push_back(entry);
        closing.push_back(std::move(entry));
      }
    }
    tier.all = trie_of(std::move(all));
    tier.after_quote = trie_of(std::move(suffixes));
    tier.plain = CharTrie(std::move(plain_chars));
    tier.rest = CharTrie(std::move(rest));
    tier.closing = CharTrie(std::move(closing));
    tier.closing_rest = CharTrie(std::move(closing_rest));
    tier.raw = CharTrie(std::move(raw));
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
    entries[tier].add(bytes, id, tiers_[tier], tails_);
  }
  for (size_t i = 0; i < 2; ++i) entries[i].finish(tiers_[i], num_words_);
}

}  // namespace deepinfer
