// SPDX-License-Identifier: MIT
#include "serve/sequence_masks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace deepinfer {

SequenceMasks::SequenceMasks(std::unique_ptr<MaskSource> source, int64_t vocab_size, int64_t num_drafts_max,
                             MaskWorkers& workers)
    : workers_(workers), source_(std::move(source)), rows_(1 + num_drafts_max, vocab_size) {}

void SequenceMasks::accept(std::span<const TokenId> tokens) {
  CHECK(!is_busy_);
  if (tokens.empty() || !failure_.ok()) return;
  has_rows_ = false;
  settled_.insert(settled_.end(), tokens.begin(), tokens.end());
}

void SequenceMasks::ask(std::span<const TokenId> drafts) {
  drafts = drafts.first(std::min(drafts.size(), static_cast<size_t>(rows_.num_rows() - 1)));
  wanted_.assign(drafts.begin(), drafts.end());
  if (is_busy_ || is_ready()) return;
  if (!failure_.ok()) return keep(failure_);
  drafts_.assign(drafts.begin(), drafts.end());
  if (const std::optional<int64_t> num_rows = source_->look_up_masks(settled_, drafts_, rows_)) return keep(*num_rows);
  is_busy_ = true;
  workers_.start([self = shared_from_this()] { return self->make_some(); });
}

bool SequenceMasks::is_ready() const {
  if (is_busy_.load(std::memory_order_acquire) || !has_rows_) return false;
  return !failure_.ok() ||
         (wanted_.size() <= drafts_.size() && std::equal(wanted_.begin(), wanted_.end(), drafts_.begin()));
}

std::span<const TokenId> SequenceMasks::foretold() const {
  return failure_.ok() ? source_->foretold() : std::span<const TokenId>();
}

bool SequenceMasks::make_some() {
  Result<std::optional<int64_t>> made = source_->make_masks(settled_, drafts_, rows_);
  if (made.ok() && !*made) return false;
  keep(made.ok() ? Result<int64_t>(**made) : Result<int64_t>(made.status()));
  is_busy_.store(false, std::memory_order_release);
  return true;
}

void SequenceMasks::keep(Result<int64_t> num_rows) {
  settled_.clear();
  has_rows_ = true;
  num_drafts_allowed_ = 0;
  if (num_rows.ok()) {
    CHECK(*num_rows >= 1 && *num_rows <= static_cast<int64_t>(drafts_.size()) + 1);
    num_drafts_allowed_ = *num_rows - 1;
    return;
  }
  failure_ = num_rows.status();
  std::ranges::fill(rows_.row(0), 0u);  // the engine finds nothing to pick, and the sequence ends
}

}  // namespace deepinfer
