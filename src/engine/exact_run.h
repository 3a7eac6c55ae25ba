// SPDX-License-Identifier: MIT
// Exact numbers for given token ids: prompts run whole, in chunks, token by token or all together in one continuous
// batch, and every way gives the same bits. Replay is off, because every position's logits are asked for (decision 5).
// Used by `deepinfer logits` and by tests. Thread: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace deepinfer {

struct ExactPrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> decode_tokens;  // fed one by one behind the prompt
  std::vector<TokenId> draft_anchors;  // one per decode token; empty: the next fed token, then the argmax
  std::vector<LaneImage> images;
  bool keeps_all_logits = false;
};

struct ExactNumbers {
  std::vector<float> logits;             // [vocab] behind the last prompt token
  std::vector<TokenId> argmax;           // [prompt tokens]
  std::vector<float> all_logits;         // [prompt tokens, vocab], where asked for
  std::vector<float> decode_logits;      // [decode tokens, vocab]
  std::vector<TokenId> draft_ids;        // [decode tokens, draft block]; empty for a model without a draft head
  std::vector<float> draft_confidences;  // as draft_ids
  std::vector<float> draft_logits;       // [decode tokens, draft block, vocab], where all logits are asked for
};

struct RunShape {
  int64_t chunk = 0;     // prompt rows of one sequence in a step; 0 = as many as the engine takes
  bool batched = false;  // all prompts together; chunks then vary from step to step, drawn from `seed`
  uint64_t seed = 1;
};

// Errors: invalid_argument for tokens outside the vocabulary or a prompt that needs more blocks than the engine has;
// unavailable when `keep_going`, asked before every step, says no.
Result<std::vector<ExactNumbers>> run_exact(Engine& engine, std::vector<ExactPrompt> prompts, const RunShape& shape,
                                            const std::function<bool()>& keep_going = {});

}  // namespace deepinfer
