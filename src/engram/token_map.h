// SPDX-License-Identifier: MIT
// The compressed vocabulary of the Engram hash (model.md 3.10): token ids whose text is the same after normalisation
// share a class. Built once from the text of every id; classes are numbered in order of first appearance.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace deepinfer {

// How one id reads.
struct TokenText {
  std::string text;   // the id decoded alone: control tokens by their spelling, ill-formed UTF-8 as U+FFFD
  std::string piece;  // its string in the vocabulary file (byte-level alphabet); counts only where `text` holds U+FFFD
};

struct TokenMap {
  std::vector<int32_t> class_of;  // by token id
  int64_t num_classes = 0;

  int64_t num_ids() const { return static_cast<int64_t>(class_of.size()); }
};

// `texts` in order of ids, one for every id of the vocabulary.
TokenMap make_token_map(std::span<const TokenText> texts);

// A map known already (golden data, a prepared checkpoint). Errors: invalid_argument for classes that are not numbered
// from 0 in order of first appearance.
Result<TokenMap> token_map_from_classes(std::vector<int32_t> class_of);

// NFKC, NFD, marks (Mn, Mc, Me) removed, lower case, runs of space, tab, CR and LF to one space, white space stripped
// at both ends unless the whole text is one space. `text` is valid UTF-8.
std::string normalize_token_text(std::string_view text);

}  // namespace deepinfer
