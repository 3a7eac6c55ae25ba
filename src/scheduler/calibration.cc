// SPDX-License-Identifier: MIT
#include "scheduler/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace deepinfer {
namespace {
constexpr double kDecay = 0.999, kPriorMass = 64;
constexpr int kNumTemperatures = 49;  // log-spaced in [1/8, 8], with 1 in the middle
constexpr int64_t kRefitPeriod = 256;
constexpr double kWeightMax = 1e6;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double temperature_at(int i) { return std::exp2(6.0 * i / (kNumTemperatures - 1) - 3.0); }

// log of the probability that a bin's center gives at a temperature, and of its complement: refits are sums of
// products.
struct LogProbability {
  double accepted, rejected;
};
template <typename CenterOf>
std::vector<LogProbability> log_probabilities(int num_bins, const CenterOf& center_of) {
  std::vector<LogProbability> table;
  for (int i = 0; i < kNumTemperatures; ++i)
    for (int b = 0; b < num_bins; ++b) {
      const double p = sigmoid(center_of(b) / temperature_at(i));
      table.push_back({std::log(p), std::log1p(-p)});
    }
  return table;
}
}  // namespace

Calibration::Calibration(int64_t num_drafts)
    : bins_(static_cast<size_t>(num_drafts)), temperatures_(static_cast<size_t>(num_drafts), 1.0f) {
  for (auto& position : bins_)
    for (int bin = 0; bin < kNumBins; ++bin)
      position[static_cast<size_t>(bin)] = {kPriorMass / kNumBins, kPriorMass / kNumBins * sigmoid(bin_center(bin))};
}

float Calibration::bin_center(int bin) {
  return (static_cast<float>(bin) + 0.5f) * 2 * kLogitRange / kNumBins - kLogitRange;
}

void Calibration::add(std::span<const float> logits, int64_t num_verified, int64_t num_accepted) {
  CHECK(num_accepted <= num_verified && num_verified <= static_cast<int64_t>(logits.size()));
  ++num_runs_;
  weight_ /= kDecay;
  // The first rejected draft has a label, those after it have none.
  const size_t num_labels = static_cast<size_t>(std::min(num_verified, num_accepted + 1));
  for (size_t j = 0; j < std::min(bins_.size(), num_labels); ++j) {
    const int at = static_cast<int>((logits[j] + kLogitRange) * kNumBins / (2 * kLogitRange));
    Bin& bin = bins_[j][static_cast<size_t>(std::clamp(at, 0, kNumBins - 1))];
    bin.count += weight_;
    bin.accepted += static_cast<int64_t>(j) < num_accepted ? weight_ : 0;
  }
  if (num_runs_ % kRefitPeriod == 0)
    for (size_t j = 0; j < bins_.size(); ++j) refit(j);
  if (weight_ < kWeightMax) return;
  for (auto& position : bins_)
    for (Bin& bin : position) {
      bin.count /= weight_;
      bin.accepted /= weight_;
    }
  weight_ = 1;
}

void Calibration::refit(size_t draft) {
  static const std::vector<LogProbability> table = log_probabilities(kNumBins, &Calibration::bin_center);
  double best_loss = INFINITY;
  for (int i = 0; i < kNumTemperatures; ++i) {
    double loss = 0;
    for (int b = 0; b < kNumBins; ++b) {
      const Bin& bin = bins_[draft][static_cast<size_t>(b)];
      const LogProbability& log_p = table[static_cast<size_t>(i * kNumBins + b)];
      loss -= bin.accepted * log_p.accepted + (bin.count - bin.accepted) * log_p.rejected;
    }
    if (loss < best_loss) {
      best_loss = loss;
      temperatures_[draft] = static_cast<float>(temperature_at(i));
    }
  }
}

float Calibration::expected_calibration_error(int64_t draft) const {
  double error = 0, total = 0;
  for (int b = 0; b < kNumBins; ++b) {
    const Bin& bin = bins_[static_cast<size_t>(draft)][static_cast<size_t>(b)];
    error +=
        std::abs(bin.accepted -
                 bin.count * sigmoid(bin_center(b) / static_cast<double>(temperatures_[static_cast<size_t>(draft)])));
    total += bin.count;
  }
  return static_cast<float>(error / total);
}

}  // namespace deepinfer
