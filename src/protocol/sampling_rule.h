// SPDX-License-Identifier: MIT
// Sampling fields of the three protocols: range checks in the original's order, then the values that take effect.
// Source: chat.md 3.1 (sampling, shared checks); decision 9.
#pragma once

#include <cstdint>
#include <optional>

#include "base/json.h"
#include "chat/chat_request.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"

namespace deepinfer {

struct SamplingWish {
  std::optional<uint64_t> n;
  std::optional<float> presence_penalty, frequency_penalty, temperature, top_p;
  bool logprobs = false;
  std::optional<uint64_t> top_logprobs;
  std::optional<uint64_t> max_tokens;
  bool lowers_max_tokens = false;  // Messages: a value above the bound becomes the bound
  std::optional<uint64_t> seed;
};

// Needs the conversation's thinking mode and tools, and the version. `max_tokens_field` names the field in `param`.
Refusal settle_sampling(const SamplingWish& wish, const DecodeOptions& options, const char* max_tokens_field,
                        ChatRequest& chat);

// `top_k` of a request; vLLM's clients say "all" as -1.
Refusal read_top_k(const Json& request, InferenceOptions& inference);

}  // namespace deepinfer
