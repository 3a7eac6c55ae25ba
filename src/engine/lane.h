// SPDX-License-Identifier: MIT
// The engine's side of a running sequence that is not device memory: parameters, images, the last tokens. Thread:
// engine's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/lane_start.h"
#include "sampler/token_history.h"
#include "scheduler/batch.h"

namespace deepinfer {

// Tokens by position, as far back as an n-gram and a rejected verify run reach. Positions may be written again after a
// rollback; whatever was written above them is forgotten.
class TokenRing {
 public:
  TokenRing() = default;
  TokenRing(int64_t look_back, int64_t verify_rows_max);
  void clear();
  void write(int64_t position, TokenId token);
  // Whether positions [begin, end) can be read and end is no further than one past what was written.
  bool holds(int64_t begin, int64_t end) const;
  TokenId read(int64_t position) const { return tokens_[static_cast<size_t>(position) % tokens_.size()]; }

 private:
  std::vector<TokenId> tokens_;
  int64_t begin_ = 0, end_ = 0;
};

struct Lane {
  SamplingParams params;
  TokenHistory history;
  bool keeps_history = false;
  int64_t num_output_tokens = 0;
  std::vector<LaneImage> images;
  TokenRing tokens;
  // Of the sequence's end: no step has rows of it any more.
  std::vector<TokenId> stop_ids;
  int64_t output_tokens_max = INT64_MAX;
  bool is_ended = false;
  // What a step that follows begins with: the token picked last, its position, the drafts behind it.
  std::optional<TokenId> last_token;
  int64_t position = 0;
  std::vector<TokenId> drafts;
  std::vector<float> confidences;

  int64_t drafts_wanted() const { return std::max<int64_t>(0, output_tokens_max - num_output_tokens - 1); }

  void start(LaneStart start);
  void append(TokenId token);            // picked; says whether the sequence ends with it
  int64_t ring_begin = 0, ring_end = 0;  // positions whose window rows were written since admission, highest run

  void note_rows(int64_t position_begin, int64_t num_rows);
  // The embedding row of an image position, nullptr for text.
  const bf16* image_row(int64_t position, int64_t hidden) const;
};

// The n-grams of a sequence's rows, look_back tokens each, newest first, appended to `out`. Errors: invalid_argument
// when the tokens before the first row are unknown.
Status append_ngrams(const Lane& lane, const BatchSequence& sequence, std::span<const TokenId> rows, int64_t look_back,
                     std::vector<TokenId>& out);

// Writes the rows, and what came as their history, into the lane's ring: once the step is sure to run.
void remember_tokens(Lane& lane, const BatchSequence& sequence, std::span<const TokenId> rows, int64_t look_back);

}  // namespace deepinfer
