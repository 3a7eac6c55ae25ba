// SPDX-License-Identifier: MIT
// The entry list of one query (sparse_attention.h) as addresses: where each entry's packed row stands, or null =
// missing.
#pragma once

#include "kernels/sparse_attention/sparse_attention.h"

namespace deepinfer {

constexpr int64_t num_entries(const SparseAttentionParams& p) {
  return p.window + (p.selected.data ? p.selected.size[1] : 0) + p.block_rows;
}

struct EntryRow {
  const uint8_t* row = nullptr;
  RowFormat format = RowFormat::kFp8Block32;
};

constexpr EntryRow entry_row(const SparseAttentionParams& p, int64_t token, int64_t entry) {
  if (entry < p.window) {
    const int64_t position = p.window_end(token) - p.window + entry, age = p.window_end(token) - position;
    const int64_t begin = p.window_begin.data ? p.window_begin(token) : 0;
    if (position < 0 || position < begin) return {};
    return {age <= p.num_fresh(token) ? p.fresh.row(token + 1 - age) : p.ring.row(p.lane(token), position),
            p.window_format};
  }
  entry -= p.window;
  if (p.selected.data && entry < p.selected.size[1]) {
    const int32_t group = p.selected(token, entry);
    return {group == kNoEntry ? nullptr : p.global.row(p.lane(token), group), p.global_format};
  }
  if (p.selected.data) entry -= p.selected.size[1];
  return {p.fresh.row(p.block_begin(token) + entry), p.window_format};
}

}  // namespace deepinfer
