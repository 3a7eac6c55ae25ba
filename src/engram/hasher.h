// SPDX-License-Identifier: MIT
// From the last tokens of a sequence to the rows of every Engram table (model.md 3.10). Rows depend on token ids only,
// so they can be computed, and fetched, before the forward pass. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engram/engram_config.h"
#include "engram/hash_plan.h"
#include "engram/token_map.h"

namespace deepinfer {

class EngramHasher {
 public:
  // Errors: invalid_argument when the map's number of classes is not the configuration's, or the pad id has no class.
  static Result<EngramHasher> make(const EngramConfig& config, TokenMap map);

  static constexpr TokenId kDead = -1;  // no token here (before the sequence), or one of an image span

  int look_back() const { return plan_.ngram_max; }  // tokens a hash sees, the current one included
  int num_tables() const { return static_cast<int>(plan_.layers.size()); }
  int rows_per_token() const { return plan_.rows_per_token(); }
  const HashPlan& plan() const { return plan_; }
  const TokenMap& token_map() const { return map_; }

  // `newest_first`: the look_back() tokens ending at this position, kDead where there is none. A dead token hides
  // itself and everything before it. `rows` receives rows_per_token() row numbers of table `table` (index into the
  // configuration's list), in column order. Ids without a class (beyond the tokenizer's vocabulary) count as pad.
  void rows(int table, std::span<const TokenId> newest_first, std::span<int64_t> rows) const;

 private:
  EngramHasher() = default;
  int32_t class_of(TokenId id) const;

  HashPlan plan_;
  TokenMap map_;
  int32_t pad_class_ = 0;
};

}  // namespace deepinfer
