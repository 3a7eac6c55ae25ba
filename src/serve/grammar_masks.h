// SPDX-License-Identifier: MIT
// Masks of an answer that follows a grammar, for the step loop. The grammar is shared.
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
  explicit GrammarMasks(std::shared_ptr<Grammar> grammar, int64_t tokens_max = 0);

  // Errors: internal, a token that its mask did not allow; resource_exhausted, the grammar hit a limit.
  Result<std::optional<int64_t>> make_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                            TokenMasks& masks) override;
  std::optional<int64_t> look_up_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                       TokenMasks& masks) override;
  std::span<const TokenId> foretold() const override { return foretold_; }

 private:
  Matcher matcher_;
  std::vector<TokenId> foretold_;
  int64_t tokens_max_;
  uint64_t units_;  // of the next call
};

// Those of a prepared request; null when its answer is free.
std::unique_ptr<MaskSource> grammar_masks(const PreparedRequest& request);

}  // namespace deepinfer
