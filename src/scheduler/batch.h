// SPDX-License-Identifier: MIT
// The two nouns between scheduler and engine: what one step computes, and what came out.
//
// A Batch holds rows (one token at one position each) of many sequences. A sequence's rows stand together, in position
// order and without gaps: a prefill chunk, one decode row, or a verify run [anchor, d1 .. dn] look the same to the
// engine. Results of a row never depend on the other rows, on the chunk it came in, or on the number of threads.
//
// While a step runs, its tokens are not known yet, but the next step can be planned all the same: a sequence with
// `follows` has no rows in the batch. When its step begins the engine takes them from the lane, where the step before
// has left the last token, its position and the drafts (serving.md 5.2: the lane is the future-token map). How many of
// the drafts are verified is settled there, too: `verify_budget` of all of them, the likeliest first.
// Thread: made by plan, copied by the engine's launch().
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/range.h"
#include "base/status.h"
#include "kv/block_table.h"
#include "kv/tail_cache.h"

namespace deepinfer {

// Longest draft block the engine supports; a verify run has one row more.
inline constexpr int64_t kDraftTokensMax = 15;

// The confidence of a draft that a grammar proposes: how often such drafts stand is measured (foretold_rate.h), and it
// says nothing of the draft head.
inline constexpr float kForetoldConfidence = std::numeric_limits<float>::infinity();

// Which rows run where. All values are positions. The defaults mean a plain run: every row in every layer, full
// windows. Filled from a ReplayPlan (replay_plan.h) and the same for all chunks of one prompt.
struct RowLimits {
  int64_t decoder_begin = 0;         // rows below stop after the keys and values of the last kv-source layer
  int64_t window_begin = 0;          // SWA KV below is not read by layers up to and including the last kv source
  int64_t decoder_window_begin = 0;  // ... by the layers after it and by the draft layers
  int64_t global_kv_begin = 0;       // rows below do not write global KV: it is in the blocks already
  bool operator==(const RowLimits&) const = default;
};

struct BatchSequence {
  SequenceId id{};
  int32_t lane = 0;                    // its row of device-resident state
  const BlockTable* blocks = nullptr;  // covers every position that its rows may have; read by launch()
  int64_t position_begin = 0;          // position of its first row
  Range rows;                          // its rows in Batch::tokens
  int64_t num_logits_rows =
      0;  // the last so many rows give logits: 0 in mid-prompt, 1 to sample, n + 1 to verify n drafts
  RowLimits limits;
  // Tokens just before the first row, oldest first (at most the Engram look-back; fewer near position 0). Read only
  // when the lane did not run position_begin - 1 itself: after a prefix hit or a resume.
  std::vector<TokenId> history;
  bool starts_lane = false;  // first rows since the sequence took this lane: the lane's state is admitted anew
  TailBytes tail;            // put into the lane before the first row, which stands at the block's end it is of
  // Record the tail at the last block's end that these rows reach, when it is not below this position.
  std::optional<int64_t> tail_from;
  bool sample = true;                   // false: logits only, nothing is picked
  bool draft = false;                   // propose tokens after the last accepted one
  std::optional<TokenId> draft_anchor;  // draft after this token instead of the sampled one
  // Rows, position and the number of logits rows come from the lane: the anchor and at most `follow_drafts_max` drafts.
  // No rows at all when the sequence has ended by then.
  bool follows = false;
  int64_t follow_drafts_max = 0;
};

struct Batch {
  uint64_t step = 0;
  std::vector<TokenId> tokens;  // one per row; image positions carry the image id
  std::vector<BatchSequence> sequences;
  int64_t verify_budget = 0;        // drafts verified by all sequences that follow
  std::vector<float> temperatures;  // of their confidences, by draft position (calibration.h); missing = 1
  float foretold_rate = 1;          // of their drafts with kForetoldConfidence, those that stand
  bool empty() const { return sequences.empty(); }
  int64_t num_rows() const { return static_cast<int64_t>(tokens.size()); }  // rows of sequences that follow not counted
};

struct TokenLogprobs {
  float logprob = 0;                                 // of the picked token
  std::vector<std::pair<TokenId, float>> likeliest;  // by logprob, then id
};

struct SequenceOutput {
  SequenceId id{};
  int32_t lane = 0;
  int64_t num_rows = 0;      // that ran; 0 where a sequence that follows had ended
  int64_t num_verified = 0;  // drafts among them
  int64_t logits_begin = 0;  // its first row in the step's logits
  // Picked tokens: the accepted drafts, then one more. Empty where nothing was sampled.
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;  // of `tokens`, where the sequence's parameters ask for them
  int64_t num_accepted = 0;             // drafts of the verify run that stand
  std::vector<TokenId> drafts;          // proposed next, after the last token
  std::vector<float> confidences;       // raw draft confidences (no sigmoid)
  TailBytes tail;                       // where one was asked for and the windows still held it
  int64_t tail_position = 0;            // the block's end it is of
  bool is_finite = true;                // false: a logit of this sequence is NaN or infinite; nothing was picked
  bool has_allowed_token = true;        // false: the mask left no token; nothing was picked
  bool is_late = false;  // its mask was not there in time: nothing was picked, its last row and drafts run again
};

struct StepOutput {
  uint64_t step = 0;
  std::vector<SequenceOutput> sequences;           // in batch order
  Status failure;                                  // not ok: the step was stopped; its sequences cannot go on
  int64_t forward_ns = 0, sample_ns = 0;           // time of the engine's thread inside the step, waiting not counted
  int64_t cpu_ns = 0;                              // CPU time of that thread in the same parts
  int64_t idle_ns = 0;                             // from the end of the step before to the begin of this one
  int64_t device_busy_ns = 0, device_idle_ns = 0;  // in and between steps by the device's clock; 0 on the host
  int64_t experts_read = 0;                        // routed experts that were not in memory, drafting's too
  int64_t expert_bytes_read = 0;
};

}  // namespace deepinfer
