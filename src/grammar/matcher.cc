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

Result<size_t> Matcher::fill_masks(std::span<const TokenId> drafts, TokenMasks& masks, int64_t first_row,
                                   std::optional<int64_t> room) const {
  StateId state = states_.back();
  size_t num_rows = 0;
  for (bool ended = is_ended_;; ++num_rows) {
    std::span<uint32_t> row = masks.row(first_row + static_cast<int64_t>(num_rows));
    if (ended) std::ranges::fill(row, 0u);
    else if (room) TRY(grammar_->fill_mask_within(state, *room - static_cast<int64_t>(num_rows), row));
    else TRY(grammar_->fill_mask(state, row));
    if (num_rows == drafts.size() || ended) break;
    const TokenId draft = drafts[num_rows];
    if (!is_allowed(row, draft)) break;
    ended = is_end(*grammar_, draft);
    if (!ended) state = grammar_->step(state, draft);
  }
  return num_rows + 1;
}

std::vector<TokenId> Matcher::forced_tokens(size_t tokens_max) const {
  if (is_ended_) return {};
  std::vector<TokenId> tokens;
  const Tokenizer& tokenizer = grammar_->index().tokenizer();
  for (const Grammar::Forced& piece : grammar_->forced(states_.back(), tokens_max * 8)) {
    std::vector<TokenId> ids = tokenizer.encode(piece.text);
    // A control token ends the text before it; what stands at the end could merge with what follows.
    if (piece.control < 0) ids.resize(ids.size() - std::min(ids.size(), kUncertainTokens));
    else ids.push_back(piece.control);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  tokens.resize(std::min(tokens.size(), tokens_max));
  return tokens;
}

}  // namespace deepinfer
