// SPDX-License-Identifier: MIT
// Switches drafting off while it cannot pay: when hardly any draft is accepted (a draft head that is broken or
// untrained), drafting and verifying only cost time. After a pause a short trial looks again. Output never depends on
// it. Thread: its owner's.
#pragma once

#include <cstdint>

namespace deepinfer {

class DraftGuard {
 public:
  // Whether the next step should draft. Called once a step.
  bool next_step_drafts() {
    if (pause_steps_ == 0) return true;
    if (--pause_steps_ == 0) num_runs_ = 0;
    return pause_steps_ == 0;
  }

  // One verify run with at least one draft.
  void add(int64_t num_accepted) {
    mean_accepted_ += (static_cast<double>(num_accepted) - mean_accepted_) * kWeight;
    if (++num_runs_ < kTrialRuns || mean_accepted_ >= kAcceptedMin) return;
    pause_steps_ = kPauseSteps;
    ++num_pauses_;
    mean_accepted_ = kStart;
  }

  int64_t num_pauses() const { return num_pauses_; }

 private:
  // With nothing accepted the mean falls from 1 below the minimum within 32 runs.
  static constexpr double kStart = 1.0, kWeight = 0.06, kAcceptedMin = 0.25;
  static constexpr int64_t kTrialRuns = 24, kPauseSteps = 1024;

  double mean_accepted_ = kStart;
  int64_t num_runs_ = 0, pause_steps_ = 0, num_pauses_ = 0;
};

}  // namespace deepinfer
