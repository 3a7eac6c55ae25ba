// SPDX-License-Identifier: MIT
#include "serve/grammar_masks.h"

#include <fmt/format.h>

namespace deepinfer {

Result<int64_t> GrammarMasks::fill_masks(std::span<const TokenId> drafts, TokenMasks& masks) {
  const auto room =
      tokens_max_ == 0 ? std::optional<int64_t>() : tokens_max_ - static_cast<int64_t>(matcher_.num_tokens());
  ASSIGN_OR_RETURN(const size_t num_rows, matcher_.fill_masks(drafts, masks, 0, room));
  return static_cast<int64_t>(num_rows);
}

Status GrammarMasks::accept(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens)
    if (!matcher_.accept(token))
      return internal_error(
          fmt::format("token {} at position {} does not follow the grammar", token, matcher_.num_tokens()));
  return {};
}

std::unique_ptr<MaskSource> grammar_masks(const PreparedRequest& request) {
  if (!request.grammar) return nullptr;
  const int64_t tokens_max = request.chat.inference.closes_at_max_tokens ? request.max_tokens : 0;
  return std::make_unique<GrammarMasks>(request.grammar, tokens_max);
}

}  // namespace deepinfer
