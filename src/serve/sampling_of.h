// SPDX-License-Identifier: MIT
// What a request asks of the sampler, in the sampler's terms.
#pragma once

#include "chat/chat_request.h"
#include "model/config.h"
#include "sampler/sampling_params.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// `seed` is used where the request brings none.
SamplingParams sampling_of(const InferenceOptions& asked, const ModelConfig& config, uint64_t seed);

// Each word as the tokenizer writes it at the beginning of a text and behind a space; other spellings stay possible.
void add_bad_words(const std::vector<std::string>& words, const Tokenizer& tokenizer, SamplingParams& params);

// The ids that end a sequence with these parameters.
std::vector<TokenId> ending_ids(const SamplingParams& params);

}  // namespace deepinfer
