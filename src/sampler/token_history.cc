// SPDX-License-Identifier: MIT
#include "sampler/token_history.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer {
namespace {
constexpr size_t kFirstSize = 64;

// The first place to look for an id in a table of `size` (a power of two) places.
size_t home(TokenId id, size_t size) { return (static_cast<uint32_t>(id) * 0x9E3779B1u >> 8) & (size - 1); }
}  // namespace

TokenHistory::TokenHistory() : table_(kFirstSize) { tail_.reserve(2 * kBadWordTokensMax); }

void TokenHistory::append_prompt(std::span<const TokenId> ids) {
  for (const TokenId id : ids) place(id).is_in_prompt = true;
  const size_t kept = std::min(ids.size(), static_cast<size_t>(kBadWordTokensMax));
  for (const TokenId id : ids.last(kept)) append_tail(id);
}

void TokenHistory::append_output(TokenId id) {
  ++place(id).num_outputs;
  append_tail(id);
}

TokenHistory::Entry TokenHistory::find(TokenId id) const {
  for (size_t at = home(id, table_.size());; at = (at + 1) & (table_.size() - 1)) {
    if (table_[at].id == id) return table_[at];
    if (table_[at].id < 0) return {.id = id};
  }
}

std::span<const TokenId> TokenHistory::tail() const {
  const size_t count = std::min(tail_.size(), static_cast<size_t>(kBadWordTokensMax - 1));
  return {tail_.data() + tail_.size() - count, count};
}

TokenHistory::Entry& TokenHistory::place(TokenId id) {
  CHECK(id >= 0);
  if ((num_entries_ + 1) * 4 > static_cast<int64_t>(table_.size()) * 3) grow();
  for (size_t at = home(id, table_.size());; at = (at + 1) & (table_.size() - 1)) {
    if (table_[at].id == id) return table_[at];
    if (table_[at].id < 0) {
      table_[at].id = id;
      ++num_entries_;
      return table_[at];
    }
  }
}

void TokenHistory::grow() {
  std::vector<Entry> old(2 * table_.size());
  old.swap(table_);
  num_entries_ = 0;
  for (const Entry& entry : old)
    if (entry.id >= 0) place(entry.id) = entry;
}

void TokenHistory::append_tail(TokenId id) {
  if (tail_.size() == 2 * kBadWordTokensMax) tail_.erase(tail_.begin(), tail_.begin() + kBadWordTokensMax);
  tail_.push_back(id);
}

}  // namespace deepinfer
