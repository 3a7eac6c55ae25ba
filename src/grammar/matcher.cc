// SPDX-License-Identifier: MIT
#include "grammar/matcher.h"

#include <algorithm>
#include <string>

namespace deepinfer {
namespace {

constexpr size_t kUncertainTokens = 4;  // at the end of forced text: they could merge with what follows

bool is_end(const Grammar& grammar, TokenId token) {
  return std::ranges::find(grammar.options().end_ids, token) != grammar.options().end_ids.end();
}

std::optional<StateId> look_up_step(Grammar& grammar, StateId state, TokenId token) {
  if (is_end(grammar, token)) return std::nullopt;
  const std::optional<StateId> next = grammar.look_up_step(state, token);
  return next && *next == Machine::kDead ? std::nullopt : next;
}

}  // namespace

bool Matcher::accept(TokenId token) {
  if (is_ended_) return false;
  if (is_end(*grammar_, token)) {
    if (!grammar_->is_accepting(states_.back())) return false;
    is_ended_ = true;
    states_.push_back(states_.back());
    return true;
  }
  const StateId next = grammar_->step(states_.back(), token);
  if (next == Machine::kDead) return false;
  states_.push_back(next);
  return true;
}

void Matcher::rollback(size_t n) {
  CHECK(n <= num_tokens());
  if (n == 0) return;
  is_ended_ = false;
  states_.resize(states_.size() - n);
}

Status Matcher::fill_mask(std::span<uint32_t> row) const {
  if (is_ended_) {
    std::ranges::fill(row, 0u);
    return {};
  }
  return grammar_->fill_mask(states_.back(), row);
}

Result<size_t> Matcher::fill_masks(std::span<const TokenId> drafts, TokenMasks& masks, int64_t first_row,
                                   std::optional<int64_t> room) const {
  WorkBudget unlimited;
  ASSIGN_OR_RETURN(const std::optional<size_t> num_rows, try_fill_masks(drafts, masks, first_row, room, unlimited));
  return *num_rows;
}

Result<std::optional<size_t>> Matcher::try_fill_masks(std::span<const TokenId> drafts, TokenMasks& masks,
                                                      int64_t first_row, std::optional<int64_t> room,
                                                      WorkBudget& budget) const {
  StateId state = states_.back();
  size_t num_rows = 0;
  for (bool ended = is_ended_;; ++num_rows) {
    std::span<uint32_t> row = masks.row(first_row + static_cast<int64_t>(num_rows));
    bool is_whole = true;
    if (ended) {
      std::ranges::fill(row, 0u);
    } else if (room) {
      const int64_t left = *room - static_cast<int64_t>(num_rows);
      ASSIGN_OR_RETURN(is_whole, grammar_->try_fill_mask_within(state, left, row, budget));
    } else {
      ASSIGN_OR_RETURN(is_whole, grammar_->try_fill_mask(state, row, budget));
    }
    if (!is_whole) return std::optional<size_t>();
    if (num_rows == drafts.size() || ended) break;
    const TokenId draft = drafts[num_rows];
    if (!is_allowed(row, draft)) break;
    ended = is_end(*grammar_, draft);
    if (!ended) state = grammar_->step(state, draft);
  }
  return std::optional<size_t>(num_rows + 1);
}

Result<std::optional<size_t>> Matcher::try_advance(std::span<const TokenId> tokens, std::span<const TokenId> drafts,
                                                   TokenMasks& masks, int64_t tokens_max, WorkBudget& budget) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (accept(tokens[i])) continue;
    const size_t at = num_tokens();
    rollback(i);
    return internal_error("token " + std::to_string(tokens[i]) + " at position " + std::to_string(at) +
                          " does not follow the grammar");
  }
  const auto room = tokens_max == 0 ? std::optional<int64_t>() : tokens_max - static_cast<int64_t>(num_tokens());
  Result<std::optional<size_t>> num_rows = try_fill_masks(drafts, masks, 0, room, budget);
  if (num_rows.ok() && !*num_rows) rollback(tokens.size());
  return num_rows;
}

std::optional<size_t> Matcher::look_up_advance(std::span<const TokenId> tokens, std::span<const TokenId> drafts,
                                               TokenMasks& masks) {
  if (is_ended_) return std::nullopt;
  std::vector<StateId> passed;
  StateId state = states_.back();
  for (const TokenId token : tokens) {
    const std::optional<StateId> next = look_up_step(*grammar_, state, token);
    if (!next) return std::nullopt;
    passed.push_back(state = *next);
  }
  size_t num_rows = 0;
  for (;; ++num_rows) {
    std::span<uint32_t> row = masks.row(static_cast<int64_t>(num_rows));
    if (!grammar_->look_up_mask(state, row)) return std::nullopt;
    if (num_rows == drafts.size() || !is_allowed(row, drafts[num_rows])) break;
    const std::optional<StateId> next = look_up_step(*grammar_, state, drafts[num_rows]);
    if (!next) return std::nullopt;
    state = *next;
  }
  states_.insert(states_.end(), passed.begin(), passed.end());
  return num_rows + 1;
}

std::vector<TokenId> Matcher::forced_tokens(size_t tokens_max) const {
  if (is_ended_) return {};
  return grammar_->forced_tokens(states_.back(), tokens_max, kUncertainTokens);
}

std::vector<TokenId> Matcher::foretell(std::span<const uint32_t> row) const {
  return is_ended_ ? std::vector<TokenId>() : grammar_->foretell(states_.back(), row);
}

std::optional<std::vector<TokenId>> Matcher::look_up_foretold(std::span<const uint32_t> row) const {
  return is_ended_ ? std::vector<TokenId>() : grammar_->look_up_foretold(states_.back(), row);
}

}  // namespace deepinfer
