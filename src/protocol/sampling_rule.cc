// SPDX-License-Identifier: MIT
#include "protocol/sampling_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/request_body.h"

namespace deepinfer {

namespace {

Refusal check_penalty(const std::optional<float>& value, const char* name) {
  if (!value || (*value >= -2 && *value <= 2)) return {};
  return refuse(fmt::format("Invalid {0} value, the valid range of {0} is [-2, 2]", name), name);
}

Refusal check_ranges(const SamplingWish& wish, const DecodeOptions& options) {
  const uint64_t n_max = options.recipe_compatible ? 1 : options.limits.n_max;
  if (wish.n && (*wish.n < 1 || *wish.n > n_max))
    return refuse(options.recipe_compatible ? "Invalid n value (currently only n = 1 is supported)"
                                            : fmt::format("Invalid n value, the valid range of n is [1, {}]", n_max),
                  "n");
  REFUSE_IF(check_penalty(wish.presence_penalty, "presence_penalty"));
  REFUSE_IF(check_penalty(wish.frequency_penalty, "frequency_penalty"));
  if (wish.temperature && !(*wish.temperature >= 0 && *wish.temperature <= 2))
    return refuse("Invalid temperature value, the valid range of temperature is [0, 2]", "temperature");
  if (wish.top_p && !(*wish.top_p > 0 && *wish.top_p <= 1))
    return refuse("Invalid top_p value, the valid range of top_p is (0, 1.0]", "top_p");
  if (wish.top_logprobs && !wish.logprobs)
    return refuse("Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used.",
                  "top_logprobs");
  if (wish.top_logprobs && *wish.top_logprobs > 20)
    return refuse("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].", "top_logprobs");
  return {};
}

// What the original samples with, whatever was asked for, depends on the mode.
void resolve_by_mode(const SamplingWish& wish, ChatRequest& chat) {
  const bool thinking = chat.conversation.thinking;
  chat.inference.temperature = thinking ? 1.0f : wish.temperature.value_or(1.0f);
  if (chat.version == PromptVersion::kV41)
    chat.inference.top_p = thinking ? std::max(wish.top_p.value_or(1.0f), 0.95f) : 1.0f;
  else if (thinking) chat.inference.top_p = chat.conversation.renders_tools() ? 0.95f : 1.0f;
  else chat.inference.top_p = wish.top_p.value_or(1.0f);
}

}  // namespace

Refusal settle_sampling(const SamplingWish& wish, const DecodeOptions& options, const char* max_tokens_field,
                        ChatRequest& chat) {
  REFUSE_IF(check_ranges(wish, options));
  const uint64_t bound = chat.conversation.thinking ? options.thinking_max_tokens : options.plain_max_tokens;
  std::optional<uint64_t> max_tokens = wish.max_tokens;
  if (max_tokens && wish.lowers_max_tokens) max_tokens = std::min(*max_tokens, bound);
  if (max_tokens && (*max_tokens < 1 || *max_tokens > bound))
    return refuse(fmt::format("Invalid max_tokens value, the valid range of max_tokens is [1, {}]", bound),
                  max_tokens_field);
  if (wish.seed && *wish.seed > INT64_MAX)
    return refuse("Invalid seed value, the valid range of seed is [0, 2^63)", "seed");

  InferenceOptions& inference = chat.inference;
  if (max_tokens) inference.max_tokens = static_cast<uint32_t>(*max_tokens);
  resolve_by_mode(wish, chat);
  inference.logprobs = wish.logprobs;
  if (wish.top_logprobs) inference.top_logprobs = static_cast<uint32_t>(*wish.top_logprobs);
  inference.seed = wish.seed;
  if (options.recipe_compatible) return {};
  if (wish.temperature) inference.temperature = *wish.temperature;
  if (wish.top_p) inference.top_p = *wish.top_p;
  inference.n = static_cast<uint32_t>(wish.n.value_or(1));
  inference.presence_penalty = wish.presence_penalty.value_or(0);
  inference.frequency_penalty = wish.frequency_penalty.value_or(0);
  return {};
}

Refusal read_top_k(const Json& request, InferenceOptions& inference) {
  const Json* value = member(request, "top_k");
  if (!value) return {};
  const int64_t top_k = value->as_int();
  if (top_k < -1 || top_k > INT32_MAX)
    return refuse(fmt::format("Invalid top_k value, the valid range of top_k is [-1, {}]", INT32_MAX), "top_k");
  inference.top_k = static_cast<uint32_t>(std::max<int64_t>(top_k, 0));
  return {};
}

}  // namespace deepinfer
