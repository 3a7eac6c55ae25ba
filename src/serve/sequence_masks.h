// SPDX-License-Identifier: MIT
// The masks of one running sequence: asks its source, keeps the rows until the step that picks with them has been
// collected. Thread: the loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "base/token_masks.h"
#include "serve/mask_source.h"

namespace deepinfer {

class SequenceMasks {
 public:
  SequenceMasks(std::unique_ptr<MaskSource> source, int64_t vocab_size, int64_t num_drafts_max);

  void accept(std::span<const TokenId> tokens);
  // Rows of the next verify run: after the accepted tokens and each of `drafts`. Returns how many of the drafts are
  // allowed; those behind need not be verified. Asking again before the next accept() costs nothing.
  int64_t fill(std::span<const TokenId> drafts);
  const TokenMasks& rows() const { return rows_; }
  // Not ok when the source failed: from then on nothing is allowed.
  const Status& failure() const { return failure_; }

 private:
  std::unique_ptr<MaskSource> source_;
  TokenMasks rows_;
  int64_t num_drafts_asked_ = -1;  // rows_ is for so many drafts; -1 = it has to be filled
  int64_t num_drafts_allowed_ = 0;
  Status failure_;
};

}  // namespace deepinfer
