// SPDX-License-Identifier: MIT
// BPE of one piece. For ordered merges (every released file) the encoder works from left to right: it takes the longest
// token, and gives way to shorter ones or steps back where two neighbours could not stand side by side in a BPE result;
// each place is given up at most once. Other merge lists, runs of one byte and pieces that exceed a work budget go to
// RunMerger. Immutable; the caller brings the scratch memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/run_merger.h"
#include "tokenizer/token_trie.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocabulary.h"

namespace deepinfer {

// Working memory of one encoding thread, with a small table of recent short pieces. Belongs to one Bpe for life.
class BpeScratch {
 public:
  BpeScratch();
  size_t num_bytes() const;  // held now; grows with the longest piece

 private:
  friend class Bpe;
  static constexpr size_t kPieceBytesMax = 15;
  static constexpr int kIdsMax = 3;
  static constexpr int kPlacesLog2 = 13;
  struct Remembered {
    uint64_t low = 0, high = 0;  // the piece, zero-padded, its length in the last byte; 0 = free
    TokenId ids[kIdsMax] = {};
    int32_t num_ids = 0;
  };
  std::vector<Remembered> remembered_;  // one place per hash: bounded, the latest wins
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> given_up_;
  RunMerger merger_;
};

class Bpe {
 public:
  // `vocabulary` must outlive this object.
  Bpe(const TokenizerFile& file, const Vocabulary& vocabulary);

  // Appends the ids of text[begin, end), one piece of the pre-tokenizer. Precondition: the piece is not empty.
  void encode_piece(std::string_view text, size_t begin, size_t end, BpeScratch& scratch,
                    std::vector<TokenId>& out) const;
  // The same by the definition alone; for tests.
  void encode_piece_by_definition(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

  bool is_ordered() const { return table_->is_ordered(); }

 private:
  // Whether BPE of the two tokens' bytes keeps both. Precondition: ordered merges, each token is the BPE of its own
  // bytes.
  bool can_neighbour(Symbol left, Symbol right) const;
  // `parent` is the merge whose parts they are, kNoSymbol for two tokens of a result.
  bool stays_apart(Symbol left, Symbol right, Symbol parent) const;
  bool encode_from_left(std::string_view piece, BpeScratch& scratch) const;
  void encode_afresh(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

  std::unique_ptr<const MergeTable> table_;
  std::vector<TokenId> ids_;               // by symbol
  std::unique_ptr<const TokenTrie> trie_;  // ordered merges only
};

}  // namespace deepinfer
