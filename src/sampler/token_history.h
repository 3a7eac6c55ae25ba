// SPDX-License-Identifier: MIT
// What penalties and bad words need to know of the tokens before a pick: which ids the prompt holds, how often each was
// output, and the last few tokens. Grows with the number of distinct ids, not with the vocabulary. Thread: its
// sequence's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sampler/sampling_params.h"

namespace deepinfer {

class TokenHistory {
 public:
  struct Entry {
    TokenId id = -1;  // -1 = free place of the table
    bool is_in_prompt = false;
    int32_t num_outputs = 0;
  };

  TokenHistory();
  void append_prompt(std::span<const TokenId> ids);
  void append_output(TokenId id);
  // Zero entry (not in the prompt, never output) for an unseen id.
  Entry find(TokenId id) const;
  // The whole table; skip entries with id < 0. The order means nothing.
  std::span<const Entry> entries() const { return table_; }
  // Up to kBadWordTokensMax - 1 newest tokens, oldest first.
  std::span<const TokenId> tail() const;

 private:
  Entry& place(TokenId id);
  void grow();
  void append_tail(TokenId id);

  std::vector<Entry> table_;  // open addressing, a power of two, at most 3/4 full
  int64_t num_entries_ = 0;
  std::vector<TokenId> tail_;
};

}  // namespace deepinfer
