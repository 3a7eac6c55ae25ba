// SPDX-License-Identifier: MIT
// Measures how long steps of an engine take, before anything is served, so that the scheduler starts with a curve it
// may trust. Prompt chunks at several lengths and contexts, with and without the decoder's layers; decode and verify
// rows of few and many sequences, with and without drafting, the second of two steps; both together. Round by round, as
// long as there is time; the median of each shape counts. Thread: the engine's; no step may be under way.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cost/step_time.h"
#include "engine/engine.h"

namespace deepinfer {

struct StepProfileOptions {
  int64_t num_sequences_max = 64;  // decoding at once
  int64_t num_drafts = 0;          // verified at most by each
  bool has_draft_head = true;      // steps with drafting are among those measured
  int64_t num_runs = 3;            // of each shape
  bool measures_cpu_time = false;  // see StepLoopOptions
  int64_t ns_max = 2'000'000'000;  // no new shape begins after so long
};

struct StepProfile {
  StepTime curve;
  std::vector<StepSample> samples;
};

// Uses lanes and blocks from 0 on; whatever stood there is lost. Errors: the engine's.
Result<StepProfile> profile_steps(Engine& engine, const StepProfileOptions& options, const Clock& clock);

}  // namespace deepinfer
