// SPDX-License-Identifier: MIT
// Bounded replay: which rows a prompt must run when the global KV of its first `hit` tokens is in the blocks already.
// Only SWA KV is missing then, and a window layer looks back W - 1 positions, so k consecutive window layers are exact
// again after f(k) = W + (k - 1)(W - 1) rows (TR 2.2, 3.2.2; model.md 5.5, 5.6).
//   kOff   every row in every layer; a hit without stored rings saves nothing and is not adopted.
//   kFast  the model's trained approximation: W rows before the hit in the layers up to the last kv source, the last W
//   rows
//          of the prompt in the layers after it, windows cut at the start of each segment.
//   kExact as many rows as it takes for the last row and all state left behind to equal a cold run bit for bit.
// With a tail - the encoder layers' windows as they stood at a block's end - rows go on behind it and all are exact,
// whatever the mode: a hit whose last block has one needs no replay. It must not stand behind `decoder_begin`: rows
// from there on run in every layer. The plan depends on the prompt alone, never on chunks; generated tokens recomputed
// later (after a preemption) use the plan of the original prompt, so they run the same rows as the first time. Pure
// arithmetic, any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "scheduler/batch.h"

namespace deepinfer {

enum class ReplayMode { kOff, kFast, kExact };

struct ReplayGeometry {
  int64_t window = 128;
  int64_t num_layers = 0;          // backbone layers
  int64_t num_encoder_layers = 0;  // layers up to and including the last kv source
};

// Rows after which `num_window_layers` consecutive window layers are exact again.
int64_t replay_rows(const ReplayGeometry& geometry, int64_t num_window_layers);

struct ReplayPlan {
  bool adopts_hit = false;
  std::string_view reason;  // why a hit was not adopted; empty otherwise
  int64_t run_begin = 0;    // first position to run
  RowLimits limits;
};

// Positions at which a tail saves rows: (worse, best]. Empty where none does.
struct TailRange {
  int64_t worse = 0, best = 0;
  bool empty() const { return best <= worse; }
};

// hit: tokens whose global KV is present (0 = cold run); num_prompt_tokens > hit.
ReplayPlan plan_replay(const ReplayGeometry& geometry, ReplayMode mode, int64_t hit, int64_t num_prompt_tokens);
TailRange useful_tails(const ReplayGeometry& geometry, ReplayMode mode, int64_t hit, int64_t num_prompt_tokens);
// With a tail at `tail`, inside that range.
ReplayPlan plan_from_tail(const ReplayGeometry& geometry, ReplayMode mode, int64_t hit, int64_t num_prompt_tokens,
                          int64_t tail);

}  // namespace deepinfer
