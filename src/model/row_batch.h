// SPDX-License-Identifier: MIT
// The rows of one step as the forward pass sees them: plain arrays and per-sequence facts, no requests and no policy.
// Everything is borrowed for the call.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/range.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

struct SequenceRows {
  int32_t lane = 0;
  Range rows;  // into RowBatch::tokens; position_begin, position_begin + 1, ...
  int64_t position_begin = 0;
  std::span<const BlockId> blocks;  // covers every position of the rows
  int64_t num_logits_rows = 0;      // the last so many rows; they lie at or above decoder_begin
  // Positions, as RowLimits in scheduler/batch.h.
  int64_t decoder_begin = 0, window_begin = 0, decoder_window_begin = 0, global_kv_begin = 0;
};

struct RowBatch {
  std::span<const TokenId> tokens;
  std::span<const SequenceRows> sequences;
  // Image-span rows: the embedding row that replaces the table's (nullptr: a text row). Same length as tokens.
  std::span<const bf16* const> image_rows;
  // Engram: for every row the look_back() tokens ending at it, newest first (engram/hasher.h): EngramHasher::kDead
  // before the sequence and in image spans. Empty where the model has no Engram.
  std::span<const TokenId> ngrams;

  int64_t num_rows() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace deepinfer
