// SPDX-License-Identifier: MIT
// The masks of one running sequence: asks its source, keeps the rows until the step that picks with them has been
// collected. What the source cannot look up at once is made by the workers meanwhile. Thread: the loop's; while a job
// is under way its thread has source and rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/token_masks.h"
#include "serve/mask_source.h"
#include "serve/mask_workers.h"

namespace deepinfer {

class SequenceMasks : public std::enable_shared_from_this<SequenceMasks> {
 public:
  // The workers outlive the object.
  SequenceMasks(std::unique_ptr<MaskSource> source, int64_t vocab_size, int64_t num_drafts_max, MaskWorkers& workers);

  // Precondition: the rows are there.
  void accept(std::span<const TokenId> tokens);
  // Has rows made for the next verify run: after the accepted tokens and each of `drafts`. Asking again for the same,
  // or for fewer, before the next accept() costs nothing.
  void ask(std::span<const TokenId> drafts);
  // Whether what was asked for is there.
  bool is_ready() const;
  // How many of the drafts asked for are allowed; those behind need not be verified. Precondition: is_ready().
  int64_t num_drafts_allowed() const { return num_drafts_allowed_; }
  const TokenMasks& rows() const { return rows_; }
  // Tokens that the rules nearly dictate behind the accepted ones; until the next accept(). Precondition: is_ready().
  std::span<const TokenId> foretold() const;
  // Not ok when the source failed: from then on nothing is allowed. Precondition: is_ready().
  const Status& failure() const { return failure_; }

  // Whether a step came that needed the rows before they were there. Nobody waits for one that was late last time.
  bool was_late = false;

 private:
  bool make_some();  // on a worker's thread; true when done
  void keep(Result<int64_t> num_rows);

  MaskWorkers& workers_;
  std::unique_ptr<MaskSource> source_;
  TokenMasks rows_;
  std::vector<TokenId> settled_;          // the source has not been told of yet
  std::vector<TokenId> wanted_, drafts_;  // asked for; what the rows are for, or are being made for
  bool has_rows_ = false;
  int64_t num_drafts_allowed_ = 0;
  Status failure_;
  std::atomic<bool> is_busy_ = false;
};

}  // namespace deepinfer
