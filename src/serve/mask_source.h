// SPDX-License-Identifier: MIT
// Where the masks of one sequence come from: a grammar, or whatever else knows which tokens may come next. The step
// loop asks; it knows nothing of the rules. Owned by the sequence's request. Thread: one at a time: the loop's or one
// that makes masks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "base/token_masks.h"

namespace deepinfer {

class MaskSource {
 public:
  virtual ~MaskSource() = default;

  // `settled` are the tokens that came since the last call that did its work, in order. Row i gets what may follow them
  // and the first i drafts, for i = 0 to the number of drafts that are allowed one after another. Returns how many rows
  // were filled: at least 1, at most drafts.size() + 1. A row that allows nothing is no error: the loop ends the
  // sequence with kNothingAllowed. `masks` has drafts.size() + 1 rows or more. An error ends the sequence too and is
  // told as its cause.
  // nullopt: not finished, and nothing has changed; the same call again gets further. So nobody waits for long for
  // others: a call lasts some milliseconds at most.
  virtual Result<std::optional<int64_t>> make_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                                    TokenMasks& masks) = 0;
  // The same on the loop's thread, where it takes no more than looking up what was worked out before; nullopt
  // elsewhere.
  virtual std::optional<int64_t> look_up_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                               TokenMasks& masks) = 0;
  // What the rules nearly dictate behind the settled tokens: worth proposing as drafts, the masks judge them as any
  // others. Of the last call that did its work; most positions have none.
  virtual std::span<const TokenId> foretold() const { return {}; }
};

}  // namespace deepinfer
