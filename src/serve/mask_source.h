// SPDX-License-Identifier: MIT
// Where the masks of one sequence come from: a grammar, or whatever else knows which tokens may come next. The step
// loop asks; it knows nothing of the rules. Owned by the sequence's request. Thread: the loop's.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/token_masks.h"

namespace deepinfer {

class MaskSource {
 public:
  virtual ~MaskSource() = default;

  // Row i gets what may follow the tokens accepted so far and the first i drafts, for i = 0 to the number of drafts
  // that are allowed one after another. Returns how many rows were filled: at least 1, at most drafts.size() + 1. A row
  // that allows nothing is no error: the loop ends the sequence with kNothingAllowed. `masks` has drafts.size() + 1
  // rows or more. An error ends the sequence too and is told as its cause.
  virtual Result<int64_t> fill_masks(std::span<const TokenId> drafts, TokenMasks& masks) = 0;

  // Tokens that are settled, in order; the token that ended the sequence is among them. An error ends the sequence.
  virtual Status accept(std::span<const TokenId> tokens) = 0;
};

}  // namespace deepinfer
