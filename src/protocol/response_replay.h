// SPDX-License-Identifier: MIT
// Runs recorded backend output through the parser and a protocol's encoder: what `deepinfer decode` does with one line,
// and what the golden records are compared with. Chunks, in order: {"ready": {prompt_tokens, cache_hit, fingerprint}},
// {"ids": [...], "logprobs"?: [[logprob, [[id, logprob], ...]], ...]}, {"text": ..., "tokens": n},
// {"finish": "stop" | "length" | "content_filter"}; each may carry "choice" (default 0).
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "chat/output_vocabulary.h"
#include "protocol/codec.h"
#include "protocol/response_encoder.h"

namespace deepinfer {

struct ReplayedResponse {
  std::string events;        // JSON array: Chat chunks as they are, the others as {"event", "data"}
  std::string final_object;  // JSON
  size_t num_chunks_read = 0;
};

// Errors: invalid_argument for chunks of another form, and for a wrong number of log probabilities.
Result<ReplayedResponse> replay_response(const OutputVocabulary& vocabulary, const Codec& codec,
                                         const DecodedRequest& request, const std::string& response_id,
                                         const Json& chunks);

}  // namespace deepinfer
