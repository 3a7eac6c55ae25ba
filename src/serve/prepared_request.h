// SPDX-License-Identifier: MIT
// A request ready for the step loop: token ids, image rows, budget, sampling. Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "chat/chat_request.h"
#include "engine/lane_start.h"
#include "grammar/grammar.h"
#include "sampler/sampling_params.h"
#include "store/block_key.h"

namespace deepinfer {

struct PreparedRequest {
  ChatRequest chat;
  std::vector<TokenId> tokens;       // of the prompt, images expanded
  std::vector<LaneImage> images;     // rows of the spans
  std::vector<MediaSpan> media;      // the same spans with the digests of their content
  uint32_t max_tokens = 0;           // resolved
  SamplingParams sampling;           // validated; `choice` 0
  std::shared_ptr<Grammar> grammar;  // of the answer; null: anything may come
};

}  // namespace deepinfer
