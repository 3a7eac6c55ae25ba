// SPDX-License-Identifier: MIT
#include "serve/sequence_masks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer {

SequenceMasks::SequenceMasks(std::unique_ptr<MaskSource> source, int64_t vocab_size, int64_t num_drafts_max)
    : source_(std::move(source)), rows_(1 + num_drafts_max, vocab_size) {}

void SequenceMasks::accept(std::span<const TokenId> tokens) {
  if (tokens.empty() || !failure_.ok()) return;
  num_drafts_asked_ = -1;
  failure_ = source_->accept(tokens);
}

int64_t SequenceMasks::fill(std::span<const TokenId> drafts) {
  drafts = drafts.first(std::min(drafts.size(), static_cast<size_t>(rows_.num_rows() - 1)));
  const int64_t num_drafts = static_cast<int64_t>(drafts.size());
  if (num_drafts <= num_drafts_asked_) return std::min(num_drafts, num_drafts_allowed_);
  num_drafts_asked_ = num_drafts;
  num_drafts_allowed_ = 0;
  if (failure_.ok()) {
    Result<int64_t> num_rows = source_->fill_masks(drafts, rows_);
    if (num_rows.ok()) {
      CHECK(*num_rows >= 1 && *num_rows <= num_drafts + 1);
      return num_drafts_allowed_ = *num_rows - 1;
    }
    failure_ = num_rows.status();
  }
  std::ranges::fill(rows_.row(0), 0u);  // the engine finds nothing to pick, and the sequence ends
  return 0;
}

}  // namespace deepinfer
