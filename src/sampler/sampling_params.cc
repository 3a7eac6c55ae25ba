// SPDX-License-Identifier: MIT
#include "sampler/sampling_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace deepinfer {
namespace {

constexpr float kTemperatureMax = 100, kPenaltyMax = 100, kBiasMax = 1000, kRepetitionMin = 0.01f, kRepetitionMax = 100;

Status check_between(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return invalid_argument(fmt::format("sampling: {} is {}, expected {} to {}", field, value, low, high));
}

Status check_count(std::string_view field, size_t count, int32_t max) {
  if (count <= static_cast<size_t>(max)) return {};
  return invalid_argument(fmt::format("sampling: {} has {} entries, at most {} are allowed", field, count, max));
}

Status check_id(std::string_view field, TokenId id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return invalid_argument(fmt::format("sampling: {} names token {}, the vocabulary has {}", field, id, vocab_size));
}

Status check_numbers(const SamplingParams& p) {
  TRY(check_between("temperature", p.temperature, 0, kTemperatureMax));
  TRY(check_between("top_p", p.top_p, 0, 1));
  TRY(check_between("min_p", p.min_p, 0, 1));
  TRY(check_between("repetition_penalty", p.repetition_penalty, kRepetitionMin, kRepetitionMax));
  TRY(check_between("presence_penalty", p.presence_penalty, -kPenaltyMax, kPenaltyMax));
  TRY(check_between("frequency_penalty", p.frequency_penalty, -kPenaltyMax, kPenaltyMax));
  if (p.top_k < 0) return invalid_argument(fmt::format("sampling: top_k is {}, expected 0 (off) or more", p.top_k));
  if (p.min_tokens < 0)
    return invalid_argument(fmt::format("sampling: min_tokens is {}, expected 0 or more", p.min_tokens));
  if (p.top_logprobs && (*p.top_logprobs < 0 || *p.top_logprobs > kTopLogprobsMax))
    return invalid_argument(
        fmt::format("sampling: top_logprobs is {}, expected 0 to {}", *p.top_logprobs, kTopLogprobsMax));
  return {};
}

Status check_bias(const SamplingParams& p, int64_t vocab_size) {
  TRY(check_count("logit_bias", p.logit_bias.size(), kLogitBiasMax));
  std::vector<TokenId> ids;
  for (const auto& [id, bias] : p.logit_bias) {
    TRY(check_id("logit_bias", id, vocab_size));
    TRY(check_between(fmt::format("logit_bias of token {}", id), bias, -kBiasMax, kBiasMax));
    ids.push_back(id);
  }
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids);
  if (twice != ids.end()) return invalid_argument(fmt::format("sampling: logit_bias names token {} twice", *twice));
  return {};
}

Status check_bad_words(const SamplingParams& p, int64_t vocab_size) {
  TRY(check_count("bad_words", p.bad_words.size(), kBadWordsMax));
  for (const std::vector<TokenId>& word : p.bad_words) {
    if (word.empty()) return invalid_argument("sampling: bad_words has an empty entry");
    TRY(check_count("an entry of bad_words", word.size(), kBadWordTokensMax));
    for (const TokenId id : word) TRY(check_id("bad_words", id, vocab_size));
  }
  return {};
}

}  // namespace

Status validate(const SamplingParams& params, int64_t vocab_size) {
  TRY(check_numbers(params));
  TRY(check_bias(params, vocab_size));
  TRY(check_count("stop_ids", params.stop_ids.size(), kStopIdsMax));
  TRY(check_count("eos_ids", params.eos_ids.size(), kStopIdsMax));
  for (const TokenId id : params.stop_ids) TRY(check_id("stop_ids", id, vocab_size));
  for (const TokenId id : params.eos_ids) TRY(check_id("eos_ids", id, vocab_size));
  return check_bad_words(params, vocab_size);
}

bool needs_history(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0 ||
         std::ranges::any_of(params.bad_words, [](const auto& word) { return word.size() > 1; });
}

bool ends_sequence(const SamplingParams& params, TokenId id, int64_t output_position) {
  if (output_position < params.min_tokens) return false;
  const bool is_eos = std::ranges::find(params.eos_ids, id) != params.eos_ids.end();
  return (is_eos && !params.ignore_eos) || std::ranges::find(params.stop_ids, id) != params.stop_ids.end();
}

}  // namespace deepinfer
