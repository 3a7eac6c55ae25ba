// SPDX-License-Identifier: MIT
// What a scheduler is told when it is made. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cost/step_time.h"
#include "scheduler/replay_plan.h"
#include "scheduler/state_move.h"

namespace deepinfer {

struct SchedulerOptions {
  int64_t num_lanes = 64;              // running sequences
  int64_t rows_max = 2048;             // rows of a step
  int64_t queue_max = 1024;            // waiting sequences; beyond it submit says busy
  int64_t context_tokens_max = 32768;  // prompt and output of one sequence
  int64_t step_budget_ns = 100'000'000;
  int64_t chunk_rows_min = 32;  // rows a step gives to prompts whatever the decode load
  int64_t token_budget = 1024;  // prompt rows per step while the curve is not trusted
  int64_t num_drafts = 0;       // of a verify run at most: the head's and those that a grammar foretells
  bool has_draft_head = true;   // false: none, or none wanted
  int64_t history_tokens = 3;   // Engram look-back handed over when a lane starts in mid-sequence
  double aging = 0.02;
  int64_t priority_wait_ns = 10'000'000'000;  // so much waiting counts as one level of priority (admission.h)
  std::string_view admission = "shortest";
  ReplayGeometry replay;
  std::string model_revision;
  uint32_t cache_format = 1;
  StepTime profile;               // start of the cost curve
  bool verifies_all = false;      // every draft, whatever its confidence: for comparison
  bool rests_from_drafts = true;  // where they cost more time than they save; false: whatever the clock says
  SnapshotOptions snapshots;
};

}  // namespace deepinfer
