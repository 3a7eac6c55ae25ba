// SPDX-License-Identifier: MIT
#include "grammar/matcher.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr size_t kUncertainTokens = 4;  // at the end of forced text: they could merge with what follows

bool is_end(const Grammar& grammar, TokenId token) {
  return std::ranges::find(grammar.options().end_ids, token) != grammar.options().end_ids.end();
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

Result<size_t> Matcher::fill_masks(std::span<const TokenId> drafts, TokenMasks& masks, int64_t first_row) const {
  StateId state = states_.back();
  size_t num_rows = 0;
  for (bool ended = is_ended_;; ++num_rows) {
    std::span<uint32_t> row = masks.row(first_row + static_cast<int64_t>(num_rows));
    if (ended) std::ranges::fill(row, 0u);
    else TRY(grammar_->fill_mask(state, row));
    if (num_rows == drafts.size() || ended) break;
    const TokenId draft = drafts[num_rows];
    if (is_end(*grammar_, draft)) {
      if (!grammar_->is_accepting(state)) break;
      ended = true;
      continue;
    }
    state = grammar_->step(state, draft);
    if (state == Machine::kDead) break;
  }
  return num_rows + 1;
}

std::vector<TokenId> Matcher::forced_tokens(size_t tokens_max) const {
  if (is_ended_) return {};
  const std::string forced = grammar_->forced_bytes(states_.back(), tokens_max * 8);
  std::vector<TokenId> tokens = grammar_->index().tokenizer().encode(forced);
  tokens.resize(tokens.size() - std::min(tokens.size(), kUncertainTokens));
  if (tokens.size() > tokens_max) tokens.resize(tokens_max);
  return tokens;
}

}  // namespace deepinfer
