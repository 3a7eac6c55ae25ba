// SPDX-License-Identifier: MIT
// What the HTTP side needs of the side that makes tokens, and nothing else: requests go in, updates come out. The step
// loop is one; a bench of the HTTP side alone brings another that costs nothing (serve_bench.cc). Thread: any.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kv/prefix_cache.h"
#include "serve/loop_request.h"

namespace deepinfer {

// Counters for metrics; a copy of one moment.
struct StepLoopSnapshot {
  int64_t num_waiting = 0, num_running = 0;
  int64_t num_steps = 0, num_prompt_rows = 0, num_decode_rows = 0, num_output_tokens = 0;
  int64_t num_verified_drafts = 0, num_accepted_drafts = 0;
  int64_t num_wasted_rows = 0;                          // of sequences that had ended, or whose mask was late
  int64_t num_late_masks = 0;                           // a step came before them: their sequences got nothing of it
  int64_t num_draft_pauses = 0;                         // drafting was switched off: hardly a draft stood
  int64_t num_draft_rests = 0;                          // and here: drafts cost more time than they saved
  int64_t num_experts_read = 0, expert_bytes_read = 0;  // of routed experts that were not in memory
  int64_t busy_ns = 0, idle_ns = 0;                     // of the engine's thread: in steps, and between them
  int64_t cpu_ns = 0;                                   // its CPU time in steps
  int64_t last_step_ns = 0, last_predicted_ns = 0;      // of the last step that had rows to run
  bool trusts_curve = false;
  int64_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0;
  PrefixCacheStats cache;
  TailCacheStats tails;
  int64_t num_tails = 0, tail_bytes = 0;
  int64_t num_block_copies = 0, num_copied_bytes = 0, copy_ns = 0;  // between device and host memory
  int64_t snapshot_bytes = 0;                                       // of sequence states in host memory, now
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Hands a request in. Errors: resource_exhausted when there is no room, unavailable after stop(). Whether it is taken
  // is told by the first update (`refused`).
  virtual Result<SequenceId> submit(LoopRequest request, OnLoopUpdate on_update) = 0;
  virtual void cancel(SequenceId id) = 0;
  virtual void start() = 0;  // own thread
  virtual void stop() = 0;   // ends the thread; running sequences end as cancelled
  virtual StepLoopSnapshot snapshot() const = 0;
  virtual Status failure() const = 0;  // set when it is not usable any more
};

}  // namespace deepinfer
