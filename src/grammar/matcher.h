// SPDX-License-Identifier: MIT
// One sequence's way through a grammar. Copying a matcher forks it; positions are state ids, so rollback and forks are
// exact and cost nothing. A matcher belongs to one thread at a time; its grammar is shared.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/token_masks.h"
#include "grammar/grammar.h"

namespace deepinfer {

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Grammar> grammar) : grammar_(std::move(grammar)), states_{grammar_->start()} {}

  // Consumes a token. False, and nothing changes, when the grammar does not allow it. One of the end ids is allowed in
  // accepting states and ends the text: nothing may follow it.
  bool accept(TokenId token);
  // Takes back the last n accepted tokens. Precondition: n <= num_tokens().
  void rollback(size_t n);
  size_t num_tokens() const { return states_.size() - 1; }
  bool is_ended() const { return is_ended_; }
  bool is_accepting() const { return !is_ended_ && grammar_->is_accepting(states_.back()); }

  // Row `first_row` + i gets the mask after the first i drafts, for i = 0 to the number of drafts the grammar allows in
  // a row; the return value counts these rows. The matcher does not move. Precondition: the rows exist.
  // With `room` the first row allows only tokens after which so many tokens, less one a row, still lead to an end, as
  // far as one is known.
  Result<size_t> fill_masks(std::span<const TokenId> drafts, TokenMasks& masks, int64_t first_row,
                            std::optional<int64_t> room = std::nullopt) const;
  // accept() of the tokens, then fill_masks() from row 0 on with the room that is left of `tokens_max` (0: no limit),
  // within a budget. nullopt, and the matcher stays where it is, when it was used up first; the same call again gets
  // further. Errors: internal, one of the tokens does not follow the grammar.
  Result<std::optional<size_t>> try_advance(std::span<const TokenId> tokens, std::span<const TokenId> drafts,
                                            TokenMasks& masks, int64_t tokens_max, WorkBudget& budget);
  // The same where all of it has been worked out before, without a limit; nullopt elsewhere.
  std::optional<size_t> look_up_advance(std::span<const TokenId> tokens, std::span<const TokenId> drafts,
                                        TokenMasks& masks);
  // The mask of the next token alone.
  Status fill_mask(std::span<uint32_t> row) const;
  // Tokens that certainly come next: control tokens and those of the forced text, less the last ones before what is
  // not known, which could merge with it.
  std::vector<TokenId> forced_tokens(size_t tokens_max = 64) const;
  // What a draft run should begin with; `row` is the mask of the next token. See Grammar.
  std::vector<TokenId> foretell(std::span<const uint32_t> row) const;
  std::optional<std::vector<TokenId>> look_up_foretold(std::span<const uint32_t> row) const;
  // Text that ends the answer soon; see Grammar.
  std::optional<std::string> shortest_completion(size_t bytes_max = 4096) const {
    return grammar_->shortest_completion(states_.back(), bytes_max);
  }
  const std::shared_ptr<Grammar>& grammar() const { return grammar_; }
  StateId state() const { return states_.back(); }

 private:
  Result<std::optional<size_t>> try_fill_masks(std::span<const TokenId> drafts, TokenMasks& masks, int64_t first_row,
                                               std::optional<int64_t> room, WorkBudget& budget) const;
  std::shared_ptr<Grammar> grammar_;
  std::vector<StateId> states_;  // after each token
  bool is_ended_ = false;        // the last token was an end id
};

}  // namespace deepinfer
