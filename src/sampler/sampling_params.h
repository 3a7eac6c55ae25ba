// SPDX-License-Identifier: MIT
// How a request wants its tokens picked. Made from the decoded request, fixed for the life of a sequence; plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace deepinfer {

inline constexpr int32_t kTopLogprobsMax = 20;
inline constexpr int32_t kLogitBiasMax = 4096;  // entries
inline constexpr int32_t kStopIdsMax = 256;
inline constexpr int32_t kBadWordsMax = 1024;       // sequences
inline constexpr int32_t kBadWordTokensMax = 64;    // tokens in one of them
inline constexpr float kGreedyTemperature = 1e-5f;  // at and below this the pick is the plain argmax

// Which law logprobs describe: the model's own, or the one after penalties, bias, masks and temperature (before the
// top-k, top-p and min-p cuts).
enum class LogprobSource : uint8_t { kModel, kProcessed };

struct SamplingParams {
  float temperature = 1.0f;         // 0 = greedy
  int32_t top_k = 0;                // 0 = off
  float top_p = 1.0f;               // 1 = off
  float min_p = 0.0f;               // 0 = off; relative to the likeliest token
  float repetition_penalty = 1.0f;  // over prompt and output: positive logits are divided, others multiplied
  float presence_penalty = 0.0f;    // over output: subtracted once
  float frequency_penalty = 0.0f;   // over output: subtracted per occurrence
  std::vector<std::pair<TokenId, float>> logit_bias;  // added to the logit; at most one entry per id
  uint64_t seed = 0;    // the noise's key; a request without a seed gets a random one, reported with its usage
  uint32_t choice = 0;  // which of the n choices of the request
  std::optional<int32_t> top_logprobs;  // absent = no logprobs; 0 = of the picked token alone
  LogprobSource logprob_source = LogprobSource::kModel;
  int64_t min_tokens = 0;         // end-of-sequence and stop ids are masked before this many output tokens
  bool ignore_eos = false;        // end-of-sequence ids are masked always
  std::vector<TokenId> eos_ids;   // the model's end-of-sequence ids
  std::vector<TokenId> stop_ids;  // further ids that end the sequence
  std::vector<std::vector<TokenId>>
      bad_words;  // token sequences whose last token is masked once the others stand before it
};

// Errors: invalid_argument naming the field, its bounds and what came.
Status validate(const SamplingParams& params, int64_t vocab_size);

// True when the picks depend on earlier tokens, so that the sequence needs a TokenHistory.
bool needs_history(const SamplingParams& params);

// True when `id`, standing at output position `output_position` (0 = first), ends the sequence.
bool ends_sequence(const SamplingParams& params, TokenId id, int64_t output_position);

}  // namespace deepinfer
