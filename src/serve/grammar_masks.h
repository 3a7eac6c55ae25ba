// SPDX-License-Identifier: MIT
// Masks of an answer that follows a grammar, for the step loop. Thread: the loop's; the grammar is shared.
#pragma once

#include <memory>
#include <vector>

#include "grammar/matcher.h"
#include "serve/mask_source.h"
#include "serve/prepared_request.h"

namespace deepinfer {

class GrammarMasks : public MaskSource {
 public:
  // `tokens_max`: with a limit, the answer is brought to its end before so many tokens are over, as far as a way to the
  // end is known.
  explicit GrammarMasks(std::shared_ptr<Grammar> grammar, int64_t tokens_max = 0)
      : matcher_(std::move(grammar)), tokens_max_(tokens_max) {}

  Result<int64_t> fill_masks(std::span<const TokenId> drafts, TokenMasks& masks) override;
  // Errors: internal, a token that its mask did not allow.
  Status accept(std::span<const TokenId> tokens) override;

 private:
  Matcher matcher_;
  int64_t tokens_max_;
};

// Those of a prepared request; null when its answer is free.
std::unique_ptr<MaskSource> grammar_masks(const PreparedRequest& request);

}  // namespace deepinfer
