// SPDX-License-Identifier: MIT
#include "serve/sampling_of.h"

namespace deepinfer {

SamplingParams sampling_of(const InferenceOptions& asked, const ModelConfig& config, uint64_t seed) {
  SamplingParams params;
  params.temperature = asked.temperature;
  params.top_p = asked.top_p;
  params.top_k = static_cast<int32_t>(asked.top_k.value_or(0));
  params.min_p = asked.min_p.value_or(0.0f);
  params.presence_penalty = asked.presence_penalty;
  params.frequency_penalty = asked.frequency_penalty;
  params.repetition_penalty = asked.repetition_penalty.value_or(1.0f);
  params.logit_bias.assign(asked.logit_bias.begin(), asked.logit_bias.end());
  params.seed = asked.seed.value_or(seed);
  params.min_tokens = asked.min_tokens;
  params.ignore_eos = asked.ignore_eos;
  params.eos_ids = {config.eos_token_id};
  if (asked.processed_logprobs) params.logprob_source = LogprobSource::kProcessed;
  params.stop_ids.assign(asked.stop_token_ids.begin(), asked.stop_token_ids.end());
  if (asked.logprobs) params.top_logprobs = static_cast<int32_t>(asked.top_logprobs.value_or(0));
  return params;
}

void add_bad_words(const std::vector<std::string>& words, const Tokenizer& tokenizer, SamplingParams& params) {
  for (const std::string& word : words)
    for (const std::string& text : {word, " " + word}) {
      std::vector<TokenId> ids;
      tokenizer.encode(text, ids);
      if (!ids.empty()) params.bad_words.push_back(std::move(ids));
    }
}

std::vector<TokenId> ending_ids(const SamplingParams& params) {
  std::vector<TokenId> ids = params.stop_ids;
  if (!params.ignore_eos) ids.insert(ids.end(), params.eos_ids.begin(), params.eos_ids.end());
  return ids;
}

}  // namespace deepinfer
