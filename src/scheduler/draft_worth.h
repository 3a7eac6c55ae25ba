// SPDX-License-Identifier: MIT
// Whether drafting pays: tokens that a verify run gives, against what drafting and verifying add to a step by the cost
// curve. A draft head may be right four times in five and still lose, where rows cost a machine as much as steps do, or
// where many sequences share a step already. While it loses, steps do not draft; from time to time a short trial counts
// tokens anew. What the curve says about another number of sequences counts at once. Output never depends on it.
// Thread: its owner's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cost/step_time.h"

namespace deepinfer {

class DraftWorth {
 public:
  // Whether the next step, in which so many sequences decode, should draft. Called once a step.
  bool next_step_drafts(const StepTime& curve, int64_t num_decoding) {
    if (rests_ && ++num_rest_steps_ >= kRestSteps) {
      num_rest_steps_ = 0;
      num_runs_ = 0;  // a trial
    }
    if (num_runs_ < kTrialRuns) return true;
    const double worth = this->worth(curve, std::max<int64_t>(1, num_decoding));
    const bool rests = worth < (rests_ ? kBackAt : kRestAt);
    if (rests && !rests_) {
      ++num_rests_;
      num_rest_steps_ = 0;
    }
    rests_ = rests;
    return !rests;
  }

  // One run of a sequence that had drafts.
  void add(int64_t num_verified, int64_t num_tokens) {
    const double weight = std::max(1.0 / static_cast<double>(++num_runs_), kWeight);
    mean_verified_ += weight * (static_cast<double>(num_verified) - mean_verified_);
    mean_tokens_ += weight * (static_cast<double>(num_tokens) - mean_tokens_);
  }

  // Tokens per time with drafts over those without; 1 where the curve knows nothing.
  double worth(const StepTime& curve, int64_t num_decoding) const {
    const double num = static_cast<double>(num_decoding);
    const double rows_ns = (curve.k + curve.v) * num;
    const double without_ns = curve.a + (num_decoding > 1 ? curve.r : 0) + rows_ns;
    const double with_ns = curve.a + curve.r + rows_ns + curve.s + (curve.p + curve.v * mean_verified_) * num;
    return with_ns > 0 ? mean_tokens_ * without_ns / with_ns : 1.0;
  }
  int64_t num_rests() const { return num_rests_; }

 private:
  static constexpr double kWeight = 0.02, kRestAt = 0.97, kBackAt = 1.0;
  static constexpr int64_t kTrialRuns = 24, kRestSteps = 512;

  double mean_verified_ = 0, mean_tokens_ = 1;
  int64_t num_runs_ = 0;  // since the trial began
  int64_t num_rest_steps_ = 0, num_rests_ = 0;
  bool rests_ = false;
};

}  // namespace deepinfer
