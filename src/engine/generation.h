// SPDX-License-Identifier: MIT
// One sequence from prompt to end through the engine: prefill in steps, then verify runs of the drafts it proposes. For
// the command line, benches and tests; the serving loop schedules many. The tokens are the same with drafts on or off.
// Thread: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace deepinfer {

struct GenerationRequest {
  std::vector<TokenId> prompt;
  std::vector<LaneImage> images;
  SamplingParams params;
  int64_t max_tokens = 256;
  bool drafts = true;
  ReplayMode replay = ReplayMode::kFast;
  std::function<bool()> keep_going;  // asked before every step of the prompt, where given; false cancels
};

enum class GenerationEnd { kStop, kLength, kCancelled };

struct Generation {
  std::vector<TokenId> tokens;          // a stop token included
  std::vector<TokenLogprobs> logprobs;  // of `tokens`, where asked for
  GenerationEnd end = GenerationEnd::kLength;
  int64_t num_steps = 0, num_drafted = 0, num_accepted = 0;  // decode steps; drafts verified; drafts that stood
  int64_t prefill_ns = 0, decode_ns = 0;
  int64_t expert_bytes_read = 0;  // of experts that were not in memory
};

// Called with each token as it is settled; false cancels.
using TokenSink = std::function<bool(TokenId)>;

// Uses lane 0 and blocks from 0 on. Errors: invalid_argument for a prompt that does not fit; internal when a logit is
// not finite (the message says at which output position).
Result<Generation> generate(Engine& engine, GenerationRequest request, const TokenSink& sink);

}  // namespace deepinfer
