// SPDX-License-Identifier: MIT
#include "serve/grammar_masks.h"

namespace deepinfer {
namespace {

constexpr uint64_t kUnitsAtFirst = 20'000;  // about a millisecond

}  // namespace

GrammarMasks::GrammarMasks(std::shared_ptr<Grammar> grammar, int64_t tokens_max)
    : matcher_(std::move(grammar)), tokens_max_(tokens_max), units_(kUnitsAtFirst) {}

Result<std::optional<int64_t>> GrammarMasks::make_masks(std::span<const TokenId> settled,
                                                        std::span<const TokenId> drafts, TokenMasks& masks) {
  WorkBudget budget{units_};
  ASSIGN_OR_RETURN(const auto num_rows, matcher_.try_advance(settled, drafts, masks, tokens_max_, budget));
  if (!num_rows) {
    units_ *= 2;  // caches may have lost what was worked out: it ends all the same
    return std::optional<int64_t>();
  }
  units_ = kUnitsAtFirst;
  foretold_ = matcher_.foretell(masks.row(0));
  return std::optional<int64_t>(static_cast<int64_t>(*num_rows));
}

std::optional<int64_t> GrammarMasks::look_up_masks(std::span<const TokenId> settled, std::span<const TokenId> drafts,
                                                   TokenMasks& masks) {
  if (tokens_max_ != 0) return std::nullopt;
  const size_t num_before = matcher_.num_tokens();
  const std::optional<size_t> num_rows = matcher_.look_up_advance(settled, drafts, masks);
  if (!num_rows) return std::nullopt;
  std::optional<std::vector<TokenId>> foretold = matcher_.look_up_foretold(masks.row(0));
  if (!foretold) {  // make_masks() works it out
    matcher_.rollback(matcher_.num_tokens() - num_before);
    return std::nullopt;
  }
  foretold_ = std::move(*foretold);
  return static_cast<int64_t>(*num_rows);
}

std::unique_ptr<MaskSource> grammar_masks(const PreparedRequest& request) {
  if (!request.grammar) return nullptr;
  const int64_t tokens_max = request.chat.inference.closes_at_max_tokens ? request.max_tokens : 0;
  return std::make_unique<GrammarMasks>(request.grammar, tokens_max);
}

}  // namespace deepinfer
