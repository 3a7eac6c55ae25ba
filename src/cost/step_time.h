// SPDX-License-Identifier: MIT
// Step time as a fitted curve, in nanoseconds (serving.md 2.2, with terms for what that engine does not have in one
// step: the decoder's cut, verify rows, drafting):
//   time = a + r where there is more than one row + k * sequences + v * decode and verify rows
//            + s where anything is drafted + p * sequences that draft
//            + sum over prompt chunks ( b n + g t + d n c + e n^2 + w m )
// n new tokens at context c, m of them in the decoder layers, too; t tokens attended to by them in all, each by at most
// `attended_max`, which selection keeps. Replayed rows are rows of their chunk. All coefficients are >= 0, so the curve
// is monotone in every argument.
// The curve comes from measured steps (relative error is minimised) and is refitted online; samples far from the
// prediction are stalls, not costs, and are set aside. Knows neither ops nor devices. Thread: values; the fit is owned
// by plan.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

struct ChunkShape {
  int64_t num_tokens = 0;     // n
  int64_t context = 0;        // c, tokens before the chunk
  int64_t decoder_begin = 0;  // position from which on rows run in the decoder layers, too

  int64_t num_decoder_tokens() const {  // m
    return std::max<int64_t>(0, context + num_tokens - std::max(context, decoder_begin));
  }
  double num_attended(int64_t attended_max) const {  // t
    const auto sum_below = [](int64_t end) { return static_cast<double>(end) * static_cast<double>(end - 1) / 2; };
    const int64_t end = context + num_tokens, bent = std::clamp(attended_max, context, end);
    return sum_below(bent) - sum_below(context) + static_cast<double>(attended_max) * static_cast<double>(end - bent);
  }
};

struct StepShape {
  std::vector<ChunkShape> chunks;
  int64_t num_sequences = 0;
  int64_t num_decode_rows = 0;  // anchors and drafts to verify
  int64_t num_drafting = 0;     // sequences that draft behind their tokens

  void clear() {
    chunks.clear();
    num_sequences = num_decode_rows = num_drafting = 0;
  }
};

struct StepTime {
  double a = 0;              // ns per step
  double r = 0;              // ns per step of more than one row
  double b = 0;              // ns per prompt token
  double w = 0;              // ns per prompt token in the decoder layers
  double g = 0;              // ns per prompt token and token it attends to
  double d = 0;              // ns per prompt token and context token
  double e = 0;              // ns per prompt token squared
  double k = 0;              // ns per sequence
  double v = 0;              // ns per decode row
  double s = 0;              // ns per step that drafts
  double p = 0;              // ns per sequence that drafts
  int64_t attended_max = 0;  // tokens; given, not fitted. 0: g says nothing

  int64_t predict_ns(const StepShape& shape) const;
  // Time that one more chunk adds to a step.
  double chunk_ns(const ChunkShape& chunk) const;
  // Of a prompt that comes in chunks of at most `rows_max` tokens, one behind the other.
  double prompt_ns(const ChunkShape& prompt, int64_t rows_max) const;
  StepTime scaled(double factor) const;  // every coefficient
  // Largest n with used_ns + the time of n tokens at `place` <= budget_ns, at most n_max; 0 when not even one token
  // fits. `used_ns` includes a; place.num_tokens is not read. Exact: n fits and n + 1 does not (or n = n_max).
  int64_t largest_chunk(double used_ns, double budget_ns, ChunkShape place, int64_t n_max) const;
};
struct StepSample {
  StepShape shape;
  int64_t measured_ns = 0;
};

// Non-negative least squares of relative errors, from the prior's `attended_max`. With fewer than two samples the prior
// comes back.
StepTime fit_step_time(std::span<const StepSample> samples, const StepTime& prior);

// Online refit: exponentially forgetting normal equations, bounded distance from the profiled curve. A term that
// samples say little about stays where the profile has it. A term that is zero in the profile (it was not measured, or
// vanished in its noise) is what the samples say, and so is all of a curve without a profile.
//
// Beside it a level: how much longer than the curve says steps take just now. It follows within a few steps what no
// shape tells: what the caches hold, who else uses the machine, how warm it is. Predictions are curve times level.
class StepTimeFit {
 public:
  struct Options {
    double forget = 0.999;       // per sample
    double distance_max = 0.3;   // each coefficient stays within +-30 % of the profile
    double profile_weight = 1;   // of each coefficient, in samples that consist of that term alone
    double outlier_ratio = 3.0;  // samples above 3x the prediction are set aside, below a third of it, too
    int64_t refit_period = 16;   // samples between refits
    int64_t error_window = 20;   // samples of the error guard
    double error_max = 0.10;     // mean |relative error| beyond which the curve is not trusted
    double level_weight = 0.4;   // of the last step
    double level_ratio = 1.5;    // a step says at most so much more or less than the level before it
    double level_max = 2.0;      // and at least its inverse
  };

  explicit StepTimeFit(StepTime profile) : StepTimeFit(profile, Options{}) {}
  StepTimeFit(StepTime profile, Options options);
  void add(const StepShape& shape, int64_t measured_ns);
  void add(const StepSample& sample) { add(sample.shape, sample.measured_ns); }
  const StepTime& curve() const { return curve_; }
  StepTime curve_now() const { return curve_.scaled(level_); }
  int64_t predict_ns(const StepShape& shape) const { return curve_now().predict_ns(shape); }
  // False when recent predictions are off by more than error_max, or none could be made yet: callers fall back to a
  // token budget.
  bool is_trusted() const;
  int64_t num_outliers() const { return num_outliers_; }

  static constexpr int kNumTerms = 11;
  using Terms = std::array<double, kNumTerms>;

 private:
  void refit();
  void follow(double ratio);

  StepTime profile_, curve_;
  double level_ = 1;
  bool was_outlier_ = false;  // the last sample
  bool has_profile_;
  Options options_;
  std::array<Terms, kNumTerms> gram_{};  // forgetting sum of weighted outer products
  Terms moment_{};
  int64_t num_samples_ = 0, num_outliers_ = 0, num_errors_ = 0;
  std::vector<double> recent_errors_;  // a ring of error_window places
};

}  // namespace deepinfer
