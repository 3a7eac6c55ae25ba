// SPDX-License-Identifier: MIT
#include "cost/step_time.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace deepinfer {
namespace {

using Terms = StepTimeFit::Terms;
constexpr int kNumTerms = StepTimeFit::kNumTerms;

Terms terms_of(const StepShape& shape, int64_t attended_max) {
  Terms t{};
  t[0] = 1;
  for (const ChunkShape& chunk : shape.chunks) {
    const double n = static_cast<double>(chunk.num_tokens), c = static_cast<double>(chunk.context);
    t[1] += n;
    t[2] += n * c;
    t[3] += n * n;
    t[4] += static_cast<double>(chunk.num_decoder_tokens());
    t[9] += chunk.num_attended(attended_max);
  }
  t[5] = static_cast<double>(shape.num_sequences);
  t[6] = static_cast<double>(shape.num_decode_rows);
  t[7] = shape.num_drafting > 0 ? 1 : 0;
  t[8] = static_cast<double>(shape.num_drafting);
  t[10] = t[1] + t[6] > 1 ? 1 : 0;
  return t;
}

Terms coefficients(const StepTime& x) { return {x.a, x.b, x.d, x.e, x.w, x.k, x.v, x.s, x.p, x.g, x.r}; }
StepTime step_time(const Terms& x, int64_t attended_max) {
  StepTime out{.a = x[0], .r = x[10], .b = x[1], .w = x[4], .g = x[9], .d = x[2], .e = x[3]};
  out.k = x[5];
  out.v = x[6];
  out.s = x[7];
  out.p = x[8];
  out.attended_max = attended_max;
  return out;
}

double dot(const Terms& x, const Terms& y) {
  double sum = 0;
  for (int i = 0; i < kNumTerms; ++i) sum += x[static_cast<size_t>(i)] * y[static_cast<size_t>(i)];
  return sum;
}

// Coordinate descent on min x'Gx - 2 m'x with x in [low, high]: convex, so it converges, from wherever it begins.
// Unused terms (zero diagonal) keep their start value. Terms that always come together converge slowly and need not:
// what they say together does.
constexpr int kSweepsOfAFit = 5000, kSweepsOfARefit = 200;  // a refit begins where the last one ended, and takes 20 us

Terms solve_bounded(const std::array<Terms, kNumTerms>& gram, const Terms& moment, Terms x, const Terms& low,
                    const Terms& high, int num_sweeps) {
  for (int sweep = 0; sweep < num_sweeps; ++sweep) {
    double largest_change = 0;
    for (size_t i = 0; i < kNumTerms; ++i) {
      if (gram[i][i] <= 0) continue;
      const double target = (moment[i] - dot(gram[i], x) + gram[i][i] * x[i]) / gram[i][i];
      const double next = std::clamp(target, low[i], high[i]);
      largest_change = std::max(largest_change, std::abs(next - x[i]) * std::sqrt(gram[i][i]));
      x[i] = next;
    }
    if (largest_change < 1e-6) break;
  }
  return x;
}

// Adds one sample with weight 1 / measured^2: relative errors count.
void accumulate(std::array<Terms, kNumTerms>& gram, Terms& moment, const Terms& terms, double measured) {
  for (size_t i = 0; i < kNumTerms; ++i) {
    const double scaled = terms[i] / measured;
    for (size_t j = 0; j < kNumTerms; ++j) gram[i][j] += scaled * terms[j] / measured;
    moment[i] += scaled;
  }
}

constexpr Terms kNothing{};
constexpr Terms kUnbounded = {1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300};

}  // namespace

double StepTime::chunk_ns(const ChunkShape& chunk) const {
  const double n = static_cast<double>(chunk.num_tokens), c = static_cast<double>(chunk.context);
  return n * (b + d * c + e * n) + g * chunk.num_attended(attended_max) +
         w * static_cast<double>(chunk.num_decoder_tokens());
}

double StepTime::prompt_ns(const ChunkShape& prompt, int64_t rows_max) const {
  const double num_full = static_cast<double>(prompt.num_tokens / rows_max), rows = static_cast<double>(rows_max);
  const ChunkShape rest{prompt.num_tokens % rows_max, prompt.context + prompt.num_tokens - prompt.num_tokens % rows_max,
                        prompt.decoder_begin};
  const int64_t num_decoder = prompt.num_decoder_tokens() - rest.num_decoder_tokens();
  const double num_attended = prompt.num_attended(attended_max) - rest.num_attended(attended_max);
  const double mean_context = static_cast<double>(prompt.context) + rows * (num_full - 1) / 2;  // of the full chunks
  return num_full * rows * (b + d * mean_context + e * rows) + g * num_attended + w * static_cast<double>(num_decoder) +
         chunk_ns(rest);
}

int64_t StepTime::predict_ns(const StepShape& shape) const {
  return static_cast<int64_t>(std::llround(dot(coefficients(*this), terms_of(shape, attended_max))));
}

StepTime StepTime::scaled(double factor) const {
  Terms x = coefficients(*this);
  for (double& term : x) term *= factor;
  return step_time(x, attended_max);
}

// By halving: the curve rises with n, and has a kink where the decoder begins.
int64_t StepTime::largest_chunk(double used_ns, double budget_ns, ChunkShape place, int64_t n_max) const {
  const double left = budget_ns - used_ns;
  const auto fits = [&](int64_t n) {
    place.num_tokens = n;
    return chunk_ns(place) <= left;
  };
  if (n_max <= 0 || left <= 0 || !fits(1)) return 0;
  if (fits(n_max)) return n_max;
  int64_t low = 1, high = n_max;  // low fits, high does not
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

StepTime fit_step_time(std::span<const StepSample> samples, const StepTime& prior) {
  if (samples.size() < 2) return prior;
  std::array<Terms, kNumTerms> gram{};
  Terms moment{};
  for (const StepSample& sample : samples) {
    CHECK(sample.measured_ns > 0);
    accumulate(gram, moment, terms_of(sample.shape, prior.attended_max), static_cast<double>(sample.measured_ns));
  }
  return step_time(solve_bounded(gram, moment, coefficients(prior), kNothing, kUnbounded, kSweepsOfAFit),
                   prior.attended_max);
}

StepTimeFit::StepTimeFit(StepTime profile, Options options)
    : profile_(profile), curve_(profile), has_profile_(coefficients(profile) != kNothing), options_(options) {}

void StepTimeFit::add(const StepShape& shape, int64_t measured_ns) {
  const double measured = static_cast<double>(measured_ns);
  const double predicted = static_cast<double>(predict_ns(shape));
  if (measured <= 0) return;
  const double error = std::min(1.0, std::abs(predicted - measured) / measured);
  const size_t place = static_cast<size_t>(num_errors_++ % options_.error_window);
  if (place < recent_errors_.size()) recent_errors_[place] = error;
  else recent_errors_.push_back(error);
  // Stalls, and times that no step of this shape can have. Should they be the rule, the errors above say so. A curve
  // that has only itself to go by sets nothing aside before it has proved good.
  const double ratio = predicted > 0 ? measured / predicted : 1.0;
  const bool judges = has_profile_ || is_trusted();
  const bool is_outlier = judges && (ratio > options_.outlier_ratio || ratio * options_.outlier_ratio < 1);
  if (!is_outlier || was_outlier_) follow(ratio);  // one stall says nothing about the next step, two may
  was_outlier_ = is_outlier;
  if (is_outlier) {
    ++num_outliers_;
    return;
  }
  for (Terms& row : gram_)
    for (double& x : row) x *= options_.forget;
  for (double& x : moment_) x *= options_.forget;
  accumulate(gram_, moment_, terms_of(shape, profile_.attended_max), measured);
  if (++num_samples_ % options_.refit_period == 0) refit();
}

void StepTimeFit::follow(double ratio) {
  if (!has_profile_ && !is_trusted()) return;  // the curve itself still moves from refit to refit
  const double said = std::clamp(ratio, 1 / options_.level_ratio, options_.level_ratio);
  level_ = std::clamp(level_ * (1 + options_.level_weight * (said - 1)), 1 / options_.level_max, options_.level_max);
}

void StepTimeFit::refit() {
  const Terms center = coefficients(profile_);
  std::array<Terms, kNumTerms> gram = gram_;
  Terms moment = moment_, low{}, high = kUnbounded;
  for (size_t i = 0; i < kNumTerms; ++i) {
    if (center[i] <= 0) continue;
    low[i] = center[i] * (1 - options_.distance_max);
    high[i] = center[i] * (1 + options_.distance_max);
    gram[i][i] += options_.profile_weight / (center[i] * center[i]);  // of the relative distance, squared
    moment[i] += options_.profile_weight / center[i];
  }
  curve_ =
      step_time(solve_bounded(gram, moment, coefficients(curve_), low, high, kSweepsOfARefit), profile_.attended_max);
}

bool StepTimeFit::is_trusted() const {
  if (static_cast<int64_t>(recent_errors_.size()) < options_.error_window) return has_profile_;
  double sum = 0;
  for (const double error : recent_errors_) sum += error;
  return sum / static_cast<double>(recent_errors_.size()) <= options_.error_max;
}

}  // namespace deepinfer
