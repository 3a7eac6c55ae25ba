// SPDX-License-Identifier: MIT
// Online temperatures for draft confidences: per draft position, decayed counts of (logit bin, accepted) and the
// temperature that explains them best (log loss), among log-spaced values (dspark-vision.md 2.4). A prior keeps the
// start near 1. Later positions have a label only while all earlier drafts were accepted. Thread: plan.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

class Calibration {
 public:
  explicit Calibration(int64_t num_drafts);

  // One verify run: raw logits of its drafts, how many were verified, how many of those were accepted.
  void add(std::span<const float> logits, int64_t num_verified, int64_t num_accepted);
  std::span<const float> temperatures() const { return temperatures_; }
  // Mean |share accepted - confidence| over the bins of a position, weighted by their counts.
  float expected_calibration_error(int64_t draft) const;

 private:
  static constexpr int kNumBins = 16;
  static constexpr float kLogitRange = 8.0f;  // bins cover [-8, 8]
  struct Bin {
    double count = 0, accepted = 0;
  };
  static float bin_center(int bin);
  void refit(size_t draft);

  // Counts decay by growing the weight of new samples instead of touching every bin; rescaled before it gets large.
  double weight_ = 1;
  std::vector<std::array<Bin, kNumBins>> bins_;  // [draft]
  std::vector<float> temperatures_;
  int64_t num_runs_ = 0;
};

}  // namespace deepinfer
