// SPDX-License-Identifier: MIT
// What host and device share of picks made on a device: plain tables that the host fills for a step, and what comes
// back. All pointers of PickTables are the device's. Internal to device_sampler.* and cuda/.
#pragma once

#include <cstdint>

#include "sampler/sampling_params.h"
#include "tensor/view.h"

namespace deepinfer {

// A sequence's SamplingParams; ranges are indexes of the tables they name.
struct PickLaw {
  uint64_t seed = 0;
  int64_t min_tokens = 0;
  uint32_t choice = 0;
  float temperature = 1, top_p = 1, min_p = 0;
  float repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  int32_t top_k = 0;
  int32_t history_begin = 0, history_end = 0;           // PickTables::history
  int32_t bias_begin = 0, bias_end = 0;                 // biases
  int32_t eos_begin = 0, stop_begin = 0, stop_end = 0;  // ids: end-of-sequence ids, then further ids that end
  int32_t tail_begin = 0, tail_end = 0;                 // ids: the newest before this step; where there are bad words
  int32_t words_begin = 0, words_end = 0;               // words: bad words
  int32_t num_top_logprobs = -1;                        // -1: no logprobs
  uint8_t ignores_eos = 0, is_processed = 0;            // is_processed: LogprobSource::kProcessed
  uint8_t has_penalties = 0, is_greedy = 0, has_cuts = 0;
};

// A row of target logits.
struct PickRow {
  int32_t law = 0;
  int32_t mask = -1;                           // PickTables::masks, -1: everything allowed
  int32_t edited = -1;                         // its place in PickTables::edited, -1: no edits
  int32_t drafted_begin = 0, num_drafted = 0;  // ids
  int64_t output_position = 0;
};

// A sequence that drafts behind its rows.
struct PickDraft {
  int32_t law = 0;
  int32_t edited = -1;
  int32_t first_row = 0, num_rows = 0;  // its target rows; none: the anchor is given
  int32_t anchor = -1;
  int32_t position_end = 0;     // of the row behind its last
  int64_t output_position = 0;  // of the token picked from its first row, or, with an anchor given, of the first draft
};

struct PickHistory {
  int32_t id = 0, num_outputs = 0;
  int32_t is_in_prompt = 0;
};
struct PickBias {
  int32_t id = 0;
  float value = 0;
};
// Token ids whose last is masked where the others stand before it; a range of ids.
struct PickWord {
  int32_t begin = 0, end = 0;
};

// One piece of a row's vocabulary.
struct PickPiece {
  float max = 0;
  int32_t first = -1;  // the lowest id that has it
  int32_t is_finite = 1;
  float score = 0;  // the best with its noise
  int32_t winner = -1;
};
inline constexpr int kPickPieces = 16;
inline constexpr unsigned kPickFinishBlocks = 64;  // blocks that finish rows, each with room of its own to sort

// What comes back of a target row.
struct PickedRow {
  int32_t id = 0, error = 0, num_top = 0;
  float logit = 0, max = 0, temperature = 1;  // the law of its logprobs, where they are asked for
  double exp_sum = 0;
};
struct LikelyLogit {
  int32_t id = 0;
  float logit = 0;
};

struct PickTables {
  const PickLaw* laws = nullptr;
  const PickRow* rows = nullptr;
  const PickDraft* drafts = nullptr;
  const int32_t* ids = nullptr;
  const PickHistory* history = nullptr;
  const PickBias* biases = nullptr;
  const PickWord* words = nullptr;
  const uint32_t* masks = nullptr;
  int64_t mask_words = 0, vocab = 0;
  float* edited = nullptr;        // rows of logits after their edits
  PickPiece* pieces = nullptr;    // [rows, kPickPieces]
  uint64_t* keys = nullptr;       // [sorting blocks, keys_per_row]
  int64_t keys_per_row = 0;       // a power of two not below vocab
  PickedRow* picked = nullptr;    // [rows]
  LikelyLogit* likely = nullptr;  // [rows, kTopLogprobsMax]
  // Of sequences that draft: tokens of this step so far (picked, then drafted), how many, where the first draft stands.
  int32_t* chosen = nullptr;  // [sequences, chosen_max]
  int32_t* num_chosen = nullptr;
  int64_t chosen_max = 0;
  int64_t* draft_output_position = nullptr;
  int32_t* draft_ids = nullptr;  // [block, sequences]
};

// Where the draft head reads what the picks decide, [sequences, block] each, and [sequences].
struct DraftPlaces {
  int32_t* tokens = nullptr;
  int32_t* positions = nullptr;
  int32_t* window_end = nullptr;
  int32_t* previous = nullptr;
  int64_t block = 0;
};

using PickLogits = View<const float, dim::rows, dim::vocab>;

// The device rows; null where the build has none (cuda_absent.cc). `draft` is a position of the block, or -1: target
// rows. Everything runs on `stream` and returns before it is done.
struct DevicePicks {
  void (*edit)(void* stream, const PickTables& tables, const PickLogits& logits, int64_t draft);
  void (*pick)(void* stream, const PickTables& tables, const PickLogits& logits, int64_t draft, int32_t* previous);
  void (*start_drafts)(void* stream, const PickTables& tables, const DraftPlaces& places, int64_t num_sequences);
};
extern const DevicePicks* const kDevicePicks;

}  // namespace deepinfer
