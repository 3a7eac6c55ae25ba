// SPDX-License-Identifier: MIT
// What serve asks of the step loop for one sequence, and what comes back. Plain values.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/lane_start.h"
#include "sampler/sampling_params.h"
#include "scheduler/batch.h"
#include "scheduler/sequence.h"
#include "serve/mask_source.h"
#include "store/ttl.h"

namespace deepinfer {

struct LoopRequest {
  SequenceRequest sequence;  // its id is given by the loop
  SamplingParams sampling;
  std::vector<LaneImage> images;  // rows of the prompt's image spans
  // How long a store keeps its blocks. The end of an agent's turn is also where its windows are kept: the next comes
  // soon.
  TtlClass ttl_class = TtlClass::kChat;
  bool tenant_was_deleted = false;  // its owner's earlier data: misses say so
  std::optional<bool> pins;         // at its end its prompt's blocks are kept beyond their time, or no longer
  // Set by the loop where there is a store: what came from it, how long that took, and why it ended where it did.
  int64_t num_store_tokens = 0, store_wait_ns = 0;
  std::string store_reason;           // empty: the store was not asked
  std::unique_ptr<MaskSource> masks;  // null = every token may come; positioned behind the prompt
};

struct LoopUpdate {
  SequenceId id{};
  std::span<const TokenId> tokens;          // new, in order
  std::span<const TokenLogprobs> logprobs;  // of `tokens`, where asked for
  int64_t num_cached_tokens = 0;            // of the prompt; known from the first token on
  std::optional<SequenceEnd> finished;      // the last update has it, or `refused`
  Status refused;                           // not ok: the request never ran
  Status cause;                             // with `finished`: why, where the end alone does not say it
  const SequenceRecord* record = nullptr;   // with `finished`
};

// Called on the loop's thread; must not block. What it borrows is valid during the call.
using OnLoopUpdate = std::function<void(const LoopUpdate&)>;

}  // namespace deepinfer
