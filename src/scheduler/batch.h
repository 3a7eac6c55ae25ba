// SPDX-License-Identifier: MIT
// The two nouns between scheduler and engine: what one step computes, and what came out.
//
// A Batch holds rows (one token at one position each) of many sequences. A sequence's rows stand together, in position
// order and without gaps: a prefill chunk, one decode row, or a verify run [anchor, d1 .. dn] look the same to the
// engine. Results of a row never depend on the other rows, on the chunk it came in, or on the number of threads.
// Thread: made by plan, read by the engine until collect() of that step.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/range.h"
#include "kv/block_table.h"

namespace deepinfer {

// Longest draft block the engine supports; a verify run has one row more.
inline constexpr int64_t kDraftTokensMax = 15;

// Which rows run where. All values are positions. The defaults mean a plain run: every row in every layer, full
// windows. Filled from a ReplayPlan (replay_plan.h) and the same for all chunks of one prompt.
struct RowLimits {
  int64_t decoder_begin = 0;         // rows below stop after the keys and values of the last kv-source layer
  int64_t window_begin = 0;          // SWA KV below is not read by layers up to and including the last kv source
  int64_t decoder_window_begin = 0;  // ... by the layers after it and by the draft layers
  int64_t global_kv_begin = 0;       // rows below do not write global KV: it is in the blocks already
};

struct BatchSequence {
  SequenceId id{};
  int32_t lane = 0;                    // its row of device-resident state
  const BlockTable* blocks = nullptr;  // covers every position of its rows; borrowed until collect()
  int64_t position_begin = 0;          // position of its first row
  Range rows;                          // its rows in Batch::tokens
  int64_t num_logits_rows =
      0;  // the last so many rows give logits: 0 in mid-prompt, 1 to sample, n + 1 to verify n drafts
  RowLimits limits;
  // Tokens just before the first row, oldest first (at most the Engram look-back; fewer near position 0). Read only
  // when the lane did not run position_begin - 1 itself: after a prefix hit or a resume.
  std::vector<TokenId> history;
  bool starts_lane = false;  // first rows since the sequence took this lane: the lane's state is admitted anew
  bool sample = true;        // false: logits only, nothing is picked
  bool draft = false;        // propose tokens after the last accepted one
  std::optional<TokenId> draft_anchor;  // draft after this token instead of the sampled one
};

struct Batch {
  uint64_t step = 0;
  std::vector<TokenId> tokens;  // one per row; image positions carry the image id
  std::vector<BatchSequence> sequences;
  bool empty() const { return tokens.empty(); }
  int64_t num_rows() const { return static_cast<int64_t>(tokens.size()); }
};

struct TokenLogprobs {
  float logprob = 0;                                 // of the picked token
  std::vector<std::pair<TokenId, float>> likeliest;  // by logprob, then id
};

struct SequenceOutput {
  SequenceId id{};
  int32_t lane = 0;
  int64_t logits_begin = 0;  // its first row in the step's logits
  // Picked tokens: the accepted drafts, then one more. Empty where nothing was sampled.
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;  // of `tokens`, where the sequence's parameters ask for them
  int64_t num_accepted = 0;             // drafts of the verify run that stand
  std::vector<TokenId> drafts;          // proposed next, after the last token
  std::vector<float> confidences;       // raw draft confidences (no sigmoid)
  bool is_finite = true;                // false: a logit of this sequence is NaN or infinite; nothing was picked
  bool has_allowed_token = true;        // false: the mask left no token; nothing was picked
};

struct StepOutput {
  uint64_t step = 0;
  std::vector<SequenceOutput> sequences;  // in batch order
  int64_t forward_ns = 0, sample_ns = 0;
};

}  // namespace deepinfer
