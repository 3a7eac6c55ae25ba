// SPDX-License-Identifier: MIT
// Why neighbours decide everything (ordered merges). Let each token be the BPE of its own bytes. In the BPE of their
// concatenation the first merge that crosses a boundary joins a symbol x at the right edge of one token with a symbol y
// at the left edge of the next, at a moment when both exist: after both were made and before either is used up. Whether
// such a merge exists depends on the two tokens alone. So a sequence of tokens is the BPE of its bytes exactly when all
// pairs of neighbours are, and the sequence for each prefix of a text is unique: a place from which no continuation
// reaches the end need never be tried again. Equal ranks: parent(x) = (w, x) of the same rank as (x, y) lies to the
// left and comes first; parent(y) = (y, z) of the same rank comes after.
#include "tokenizer/bpe.h"

#include <algorithm>
#include <cstring>

namespace deepinfer {
namespace {

constexpr uint64_t kMixLow = 0x9E3779B97F4A7C15u, kMixHigh = 0xC2B2AE3D27D4EB4Fu;

struct PieceKey {
  uint64_t low, high;
};

// The piece's bytes, zero-padded, length in the top byte. Precondition: 1 to 15 bytes.
PieceKey key_of(std::string_view text, size_t begin, size_t size) {
  PieceKey key;
  char bytes[16] = {};
  if (text.size() - begin >= 16) {
    std::memcpy(bytes, text.data() + begin, 16);
    std::memcpy(&key.low, bytes, 8);
    std::memcpy(&key.high, bytes + 8, 8);
    const uint64_t keep = size * 8;
    if (size < 8) {
      key.low &= (uint64_t{1} << keep) - 1;
      key.high = 0;
    } else {
      key.high &= (uint64_t{1} << (keep - 64)) - 1;
    }
  } else {
    std::memcpy(bytes, text.data() + begin, size);
    std::memcpy(&key.low, bytes, 8);
    std::memcpy(&key.high, bytes + 8, 8);
  }
  key.high |= static_cast<uint64_t>(size) << 56;
  return key;
}

bool is_one_byte_repeated(std::string_view piece) {
  return std::memcmp(piece.data(), piece.data() + 1, piece.size() - 1) == 0;
}

std::vector<Symbol> symbols_of(const TokenizerFile& file, TokenId num_ids) {
  std::vector<Symbol> symbols(num_ids, kNoSymbol);
  for (Symbol byte = 0; byte < 256; ++byte) symbols[file.byte_tokens[byte]] = byte;
  Symbol next = 256;
  for (const TokenizerFile::Merge& merge : file.merges) {
    if (symbols[merge.result] == kNoSymbol) symbols[merge.result] = next;
    ++next;
  }
  // Parts that no merge makes: they never occur, but need a name.
  for (const TokenizerFile::Merge& merge : file.merges)
    for (const TokenId part : {merge.left, merge.right})
      if (symbols[part] == kNoSymbol) symbols[part] = next++;
  return symbols;
}

}  // namespace

BpeScratch::BpeScratch() : remembered_(size_t{1} << kPlacesLog2) {}

size_t BpeScratch::num_bytes() const {
  return remembered_.capacity() * sizeof(Remembered) + symbols_.capacity() * sizeof(Symbol) +
         given_up_.capacity() * sizeof(uint64_t) + merger_.num_bytes();
}

Bpe::Bpe(const TokenizerFile& file, const Vocabulary& vocabulary) {
  const std::vector<Symbol> symbols = symbols_of(file, static_cast<TokenId>(vocabulary.size()));
  Symbol num_symbols = 256;
  for (const Symbol symbol : symbols)
    if (symbol != kNoSymbol) num_symbols = std::max(num_symbols, symbol + 1);
  ids_.assign(num_symbols, -1);
  for (size_t id = 0; id < symbols.size(); ++id)
    if (symbols[id] != kNoSymbol) ids_[symbols[id]] = static_cast<TokenId>(id);
  std::vector<Merge> merges;
  merges.reserve(file.merges.size());
  for (const TokenizerFile::Merge& merge : file.merges)
    merges.push_back({symbols[merge.left], symbols[merge.right], symbols[merge.result]});
  table_ = std::make_unique<MergeTable>(std::move(merges));
  if (!table_->is_ordered()) return;

  // Tokens that are the BPE of their own bytes; only these can occur. A merge qualifies when its parts do and nothing
  // else would have crossed the place between them first.
  std::vector<std::string_view> tokens(num_symbols);
  for (Symbol symbol = 0; symbol < num_symbols; ++symbol) {
    if (symbol >= 256) {
      const Merge& merge = table_->merges()[symbol - 256];
      if (tokens[merge.left].empty() || tokens[merge.right].empty()) continue;
      if (!stays_apart(merge.left, merge.right, symbol)) continue;
    }
    tokens[symbol] = vocabulary.bytes(ids_[symbol]);
  }
  trie_ = std::make_unique<TokenTrie>(std::move(tokens));
}

bool Bpe::can_neighbour(Symbol left, Symbol right) const { return stays_apart(left, right, kNoSymbol); }

bool Bpe::stays_apart(Symbol left, Symbol right, Symbol parent) const {
  const Merge* merges = table_->merges().data();
  Symbol left_parent = parent, right_parent = parent;
  for (;;) {
    // Symbols made by merges are numbered by rank, so they compare as moments.
    const uint32_t rank = table_->find(left, right);
    if (rank != MergeTable::kNoRank) {
      const Symbol crossing = rank + 256;
      if (crossing < left_parent && crossing <= right_parent) return false;
    }
    // One moment back: the symbol made last falls apart; of two equal ones that is the right one.
    if (left < 256 && right < 256) return true;
    if (left > right) {
      left_parent = left;
      left = merges[left - 256].right;
    } else {
      right_parent = right;
      right = merges[right - 256].left;
    }
  }
}

bool Bpe::encode_from_left(std::string_view piece, BpeScratch& scratch) const {
  static constexpr size_t kTriesPerByte = 8;
  std::vector<Symbol>& chosen = scratch.symbols_;
  std::vector<uint64_t>& given_up = scratch.given_up_;
  chosen.clear();
  TokenTrie::Match match = trie_->longest(piece);
  if (match.num_bytes == piece.size()) {
    chosen.push_back(match.symbol);
    return true;
  }
  given_up.assign(piece.size() / 64 + 1, 0);
  size_t tries = kTriesPerByte * piece.size() + 64;
  size_t at = 0;
  for (;;) {
    while (match.symbol != kNoSymbol) {
      if (tries-- == 0) return false;
      const size_t end = at + match.num_bytes;
      const bool is_open = (given_up[end / 64] >> (end % 64) & 1) == 0;
      if (is_open && (chosen.empty() || can_neighbour(chosen.back(), match.symbol))) break;
      match = trie_->shorter(match.symbol);
    }
    if (match.symbol != kNoSymbol) {
      chosen.push_back(match.symbol);
      at += match.num_bytes;
      if (at == piece.size()) return true;
      match = trie_->longest(piece.substr(at));
    } else {
      if (chosen.empty()) return false;
      given_up[at / 64] |= uint64_t{1} << (at % 64);
      at -= trie_->num_bytes(chosen.back());
      match = trie_->shorter(chosen.back());
      chosen.pop_back();
    }
  }
}

void Bpe::encode_afresh(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  static constexpr size_t kRunBytesMin = 24;
  const bool is_run = piece.size() >= kRunBytesMin && is_one_byte_repeated(piece);
  if (!trie_ || is_run || !encode_from_left(piece, scratch)) {
    encode_piece_by_definition(piece, scratch, out);
    return;
  }
  for (const Symbol symbol : scratch.symbols_) out.push_back(ids_[symbol]);
}

void Bpe::encode_piece_by_definition(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  scratch.symbols_.clear();
  scratch.merger_.merge(*table_, piece, scratch.symbols_);
  for (const Symbol symbol : scratch.symbols_) out.push_back(ids_[symbol]);
}

void Bpe::encode_piece(std::string_view text, size_t begin, size_t end, BpeScratch& scratch,
                       std::vector<TokenId>& out) const {
  const size_t size = end - begin;
  if (size > BpeScratch::kPieceBytesMax) {
    encode_afresh(text.substr(begin, size), scratch, out);
    return;
  }
  const PieceKey key = key_of(text, begin, size);
  const uint64_t hash = (key.low * kMixLow) ^ ((key.high << 32 | key.high >> 32) * kMixHigh);
  BpeScratch::Remembered& place = scratch.remembered_[(hash * kMixLow) >> (64 - BpeScratch::kPlacesLog2)];
  if (place.low == key.low && place.high == key.high) {
    for (int i = 0; i < place.num_ids; ++i) out.push_back(place.ids[i]);
    return;
  }
  const size_t before = out.size();
  encode_afresh(text.substr(begin, size), scratch, out);
  if (out.size() - before > BpeScratch::kIdsMax) return;
  place.low = key.low;
  place.high = key.high;
  place.num_ids = static_cast<int32_t>(out.size() - before);
  std::copy(out.begin() + static_cast<ptrdiff_t>(before), out.end(), place.ids);
}

}  // namespace deepinfer
