// SPDX-License-Identifier: MIT
// How often a draft that a grammar proposes stands when those before it in its run do. The text is certain, its
// spelling in tokens is not: a model that spells it in other tokens makes such drafts cost rows for nothing. A decayed
// mean over all sequences, near 1 at the start; while such drafts are not verified it slowly returns there, so that
// they are tried again. Output never depends on it. Thread: its owner's.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepinfer {

class ForetoldRate {
 public:
  float rate() const { return static_cast<float>(rate_); }

  // One run that began with `num_drafts` such drafts (1 or more), of which so many were verified and accepted. Those
  // behind the first that fell say nothing.
  void add(int64_t num_drafts, int64_t num_verified, int64_t num_accepted) {
    num_verified = std::min(num_verified, num_drafts);
    num_accepted = std::min(num_accepted, num_verified);
    if (num_verified == 0) rate_ += kReturn * (1 - rate_);
    for (int64_t i = 0; i < num_accepted; ++i) learn(1);
    if (num_accepted < num_verified) learn(0);
  }

 private:
  // The start counts as kStartDrafts drafts. With every second draft lost the rate of 0.5 returns to 0.75 within some
  // 350 runs, and one that stands seldom falls below 0.5 within a dozen.
  static constexpr double kStart = 0.97, kWeight = 0.02, kReturn = 0.002;
  static constexpr int64_t kStartDrafts = 12;

  void learn(double stands) {
    const double weight = std::max(1.0 / static_cast<double>(kStartDrafts + ++num_learnt_), kWeight);
    rate_ += weight * (stands - rate_);
  }

  double rate_ = kStart;
  int64_t num_learnt_ = 0;
};

}  // namespace deepinfer
