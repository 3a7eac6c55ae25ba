// SPDX-License-Identifier: MIT
#include "cost/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace deepinfer {
namespace {

const StepTime kTruth{.a = 4e6,
                      .r = 1e6,
                      .b = 12e3,
                      .w = 9e3,
                      .g = 2,
                      .d = 0.011,
                      .e = 0.006,
                      .k = 2e4,
                      .v = 9e4,
                      .s = 2e6,
                      .p = 1.1e5,
                      .attended_max = 2048};

StepShape random_shape(Rng& rng) {
  StepShape shape;
  for (uint64_t i = rng.below(4); i > 0; --i)
    shape.chunks.push_back({static_cast<int64_t>(64u << rng.below(9)), static_cast<int64_t>(rng.below(768 * 1024))});
  for (ChunkShape& chunk : shape.chunks)
    chunk.decoder_begin = chunk.context + static_cast<int64_t>(rng.below(2 * static_cast<uint64_t>(chunk.num_tokens)));
  shape.num_decode_rows = static_cast<int64_t>(rng.below(300));
  shape.num_sequences = static_cast<int64_t>(shape.chunks.size()) + shape.num_decode_rows / 4;
  shape.num_drafting = rng.below(3) == 0 ? 0 : shape.num_decode_rows / 4;
  return shape;
}

StepSample noisy_sample(Rng& rng, const StepTime& truth, double noise) {
  const StepShape shape = random_shape(rng);
  const double factor = 1 + noise * (2 * rng.uniform() - 1);
  return {shape, static_cast<int64_t>(static_cast<double>(truth.predict_ns(shape)) * factor)};
}

double mean_error(const StepTime& curve, const StepTime& truth, uint64_t seed) {
  Rng rng(seed);
  double sum = 0;
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = random_shape(rng);
    sum += std::abs(static_cast<double>(curve.predict_ns(shape)) / static_cast<double>(truth.predict_ns(shape)) - 1);
  }
  return sum / 200;
}

}  // namespace

TEST(StepTime, LargestChunkFitsAndOneMoreDoesNot) {
  Rng rng(7);
  for (int i = 0; i < 20000; ++i) {
    const StepTime curve{.a = 1e6,
                         .b = 1e4 * rng.uniform(),
                         .w = rng.below(2) ? 0 : 1e4 * rng.uniform(),
                         .g = rng.below(2) ? 0 : 2 * rng.uniform(),
                         .d = rng.below(2) ? 0 : 0.05 * rng.uniform(),
                         .e = rng.below(2) ? 0 : 0.02 * rng.uniform(),
                         .attended_max = static_cast<int64_t>(1 + rng.below(4096))};
    const double used = 2e8 * rng.uniform(), budget = 2e8 * rng.uniform();
    const int64_t context = static_cast<int64_t>(rng.below(1 << 20)),
                  n_max = 1 + static_cast<int64_t>(rng.below(1 << 20));
    const ChunkShape place{0, context, context + static_cast<int64_t>(rng.below(1 << 15)) - 100};
    const int64_t n = curve.largest_chunk(used, budget, place, n_max);
    ASSERT_GE(n, 0);
    ASSERT_LE(n, n_max);
    if (n > 0) { ASSERT_LE(curve.chunk_ns({n, context, place.decoder_begin}), budget - used); }
    if (n < n_max) { ASSERT_GT(curve.chunk_ns({n + 1, context, place.decoder_begin}), budget - used); }
  }
}

TEST(StepTime, ATokenAttendsToAllBeforeItUpToWhatSelectionKeeps) {
  for (const int64_t attended_max : {0, 1, 5, 40, 1000})
    for (const int64_t context : {0, 1, 4, 39, 200})
      for (const int64_t num_tokens : {0, 1, 7, 300}) {
        double sum = 0;
        for (int64_t i = context; i < context + num_tokens; ++i) sum += static_cast<double>(std::min(i, attended_max));
        EXPECT_EQ((ChunkShape{num_tokens, context}.num_attended(attended_max)), sum);
      }
}

TEST(StepTime, APromptTakesWhatItsChunksTake) {
  Rng rng(17);
  for (int i = 0; i < 200; ++i) {
    const auto num_tokens = static_cast<int64_t>(1 + rng.below(5000)), context = static_cast<int64_t>(rng.below(9000)),
               rows_max = static_cast<int64_t>(1 + rng.below(700));
    const int64_t decoder_begin = context + static_cast<int64_t>(rng.below(6000));
    double sum = 0;
    for (int64_t done = 0; done < num_tokens; done += rows_max)
      sum += kTruth.chunk_ns({std::min(rows_max, num_tokens - done), context + done, decoder_begin});
    EXPECT_NEAR(kTruth.prompt_ns({num_tokens, context, decoder_begin}, rows_max), sum, 1e-9 * sum);
  }
}

TEST(StepTime, FitRecoversASyntheticCurveFromNoisySamples) {
  Rng rng(11);
  std::vector<StepSample> samples;
  for (int i = 0; i < 400; ++i) samples.push_back(noisy_sample(rng, kTruth, 0.02));
  const StepTime fitted = fit_step_time(samples, {.attended_max = kTruth.attended_max});
  EXPECT_LT(mean_error(fitted, kTruth, 99), 0.015);
  for (const double x :
       {fitted.a, fitted.r, fitted.b, fitted.g, fitted.w, fitted.d, fitted.e, fitted.k, fitted.v, fitted.s, fitted.p})
    EXPECT_GE(x, 0);
}

TEST(StepTimeFit, FollowsADriftAndStaysNearTheProfile) {
  StepTime slower = kTruth;
  slower.b *= 1.2;
  slower.v *= 1.2;
  StepTimeFit fit(kTruth);
  Rng rng(3);
  for (int i = 0; i < 1500; ++i) fit.add(noisy_sample(rng, slower, 0.02));
  EXPECT_LT(mean_error(fit.curve(), slower, 5), 0.03);
  StepTime absurd = kTruth;
  absurd.b *= 2.5;
  for (int i = 0; i < 1500; ++i) fit.add(noisy_sample(rng, absurd, 0.02));
  EXPECT_LE(fit.curve().b, kTruth.b * 1.3001);
  EXPECT_FALSE(fit.is_trusted());
}

TEST(StepTimeFit, WithoutAProfileLearnsFromStepsAloneAndIsTrustedWhenItPredictsThem) {
  StepTimeFit fit(StepTime{});
  EXPECT_FALSE(fit.is_trusted());
  Rng rng(9);
  for (int i = 0; i < 300; ++i) fit.add(noisy_sample(rng, kTruth, 0.02));
  EXPECT_TRUE(fit.is_trusted());
  EXPECT_LT(mean_error(fit.curve(), kTruth, 4), 0.03);
}

// Another program takes half the machine for a while. The fit over a thousand steps does not care, the level does.
TEST(StepTimeFit, FollowsASlowStretchWithinAFewStepsAndForgetsItAgain) {
  StepTimeFit fit(kTruth);
  Rng rng(13);
  StepTime slower = kTruth.scaled(1.6);
  for (int i = 0; i < 100; ++i) fit.add(noisy_sample(rng, kTruth, 0.02));
  for (int i = 0; i < 8; ++i) fit.add(noisy_sample(rng, slower, 0.02));
  EXPECT_LT(mean_error(fit.curve_now(), slower, 6), 0.05);
  EXPECT_LT(mean_error(fit.curve(), kTruth, 6), 0.08);
  for (int i = 0; i < 8; ++i) fit.add(noisy_sample(rng, kTruth, 0.02));
  EXPECT_LT(mean_error(fit.curve_now(), kTruth, 6), 0.05);
}

// A bad sample, whatever it is, never makes the curve fall with more work.
TEST(StepTimeFit, StaysMonotoneWhateverIsMeasured) {
  for (const StepTime& profile : {kTruth, StepTime{}}) {
    StepTimeFit fit(profile);
    Rng rng(21);
    for (int i = 0; i < 2000; ++i) {
      const uint64_t kind = rng.below(4);
      const int64_t measured = kind == 0   ? 0
                               : kind == 1 ? static_cast<int64_t>(rng.below(1000))
                               : kind == 2 ? INT64_MAX / 2
                                           : static_cast<int64_t>(rng.below(2'000'000'000));
      fit.add(random_shape(rng), measured);
      const StepTime c = rng.below(2) ? fit.curve() : fit.curve_now();
      for (const double x : {c.a, c.r, c.b, c.g, c.w, c.d, c.e, c.k, c.v, c.s, c.p})
        ASSERT_TRUE(std::isfinite(x) && x >= 0);
    }
  }
}

TEST(StepTimeFit, SetsStallsAside) {
  StepTimeFit fit(kTruth);
  Rng rng(5);
  for (int i = 0; i < 400; ++i) {
    StepSample sample = noisy_sample(rng, kTruth, 0.02);
    if (i % 20 == 0) sample.measured_ns *= 50;
    fit.add(sample);
  }
  EXPECT_EQ(fit.num_outliers(), 20);
  EXPECT_LT(mean_error(fit.curve(), kTruth, 8), 0.03);
  EXPECT_TRUE(fit.is_trusted());
}

}  // namespace deepinfer
