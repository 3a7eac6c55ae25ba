// SPDX-License-Identifier: MIT
// The control tokens that steer the reading of an answer, looked up by spelling in the loaded tokenizer. A missing one is
// an error at start-up that names it. Immutable.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct OutputVocabulary {
  static Result<OutputVocabulary> create(std::shared_ptr<const Tokenizer> tokenizer);

  std::shared_ptr<const Tokenizer> tokenizer;
  TokenId think_begin = -1, think_end = -1, dsml = -1, end_of_sentence = -1;
  // Tokens that open another turn: begin of sentence, system, user, assistant, latest reminder (-1: not in this file).
  std::array<TokenId, 5> turn_starts = {-1, -1, -1, -1, -1};

  bool starts_turn(TokenId id) const {
    for (const TokenId start : turn_starts) {
      if (id == start) return true;
    }
    return false;
  }
};

inline constexpr std::string_view kThinkEndSpelling = "</think>";
inline constexpr std::string_view kDsmlSpelling = "\uFF5CDSML\uFF5C";

}  // namespace deepinfer
