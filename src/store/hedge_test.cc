// SPDX-License-Identifier: MIT
#include "store/hedge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "store/ttl.h"

namespace deepinfer {
namespace {

constexpr int64_t kMs = 1'000'000;

class Hedge : public testing::Test {
 protected:
  Hedge() : group_(12) { std::iota(group_.begin(), group_.end(), 0); }

  void answer(int device, int64_t latency_ns, int64_t queue_depth = 0) {
    policy_.started(device);
    policy_.finished(device, latency_ns, queue_depth, HedgePolicy::Outcome::kAnswered);
  }
  void answer_all(int64_t latency_ns) {
    for (const int device : group_) answer(device, latency_ns);
  }
  static bool has(const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }

  ManualClock clock_;
  HedgePolicy policy_{12, 10, {}, clock_};
  PlacementGroup group_;
};

}  // namespace

TEST_F(Hedge, ElevenAreAskedAndTheSlowestIsTheSpare) {
  answer_all(kMs);
  for (int i = 0; i < 20; ++i) answer(4, 2 * kMs);
  const ReadPlan plan = policy_.plan(group_);
  EXPECT_EQ(plan.first.size(), 11u);
  EXPECT_EQ(plan.spares, std::vector<int>{4});
}

TEST_F(Hedge, AQueueCountsLikeLatency) {
  answer_all(kMs);
  for (int i = 0; i < 20; ++i) answer(7, kMs, 50);
  EXPECT_EQ(policy_.plan(group_).spares, std::vector<int>{7});
}

TEST_F(Hedge, ASilentDeviceBecomesSuspectAndIsLeftOut) {
  answer_all(kMs);
  clock_.advance_ns(kSecondNs);
  (void)policy_.plan(group_);
  policy_.started(3);
  clock_.advance_ns(30 * kMs);
  const ReadPlan first = policy_.plan(group_);  // now suspect, and asked once more as a probe
  EXPECT_EQ(policy_.health(3).state, DeviceState::kSuspect);
  EXPECT_TRUE(has(first.first, 3));
  const ReadPlan next = policy_.plan(group_);
  EXPECT_EQ(next.first.size(), 11u);
  EXPECT_EQ(next.spares, std::vector<int>{3});
}

// A loser that is taken back has not answered: a stopped device stays visible although nothing is under way.
TEST_F(Hedge, CancelledReadsDoNotHideSilence) {
  answer_all(kMs);
  policy_.started(3);
  policy_.finished(3, kMs, 0, HedgePolicy::Outcome::kCancelled);
  clock_.advance_ns(30 * kMs);
  (void)policy_.plan(group_);
  EXPECT_EQ(policy_.health(3).state, DeviceState::kSuspect);
}

TEST_F(Hedge, WithTwoSuspectsExactlyTheTenGoodOnesAreAsked) {
  answer_all(kMs);
  policy_.started(3);
  policy_.started(8);
  clock_.advance_ns(30 * kMs);
  (void)policy_.plan(group_);
  const ReadPlan plan = policy_.plan(group_);
  EXPECT_EQ(plan.first.size(), 10u);
  EXPECT_EQ(plan.spares.size(), 2u);
}

TEST_F(Hedge, WithThreeSuspectsEveryoneIsAsked) {
  answer_all(kMs);
  for (const int device : {1, 2, 3}) policy_.started(device);
  clock_.advance_ns(30 * kMs);
  (void)policy_.plan(group_);
  EXPECT_EQ(policy_.plan(group_).first.size(), 12u);
}

TEST_F(Hedge, ASlowDeviceIsSuspectAfterTwoSecondsAndGoodAgainWhenFast) {
  answer_all(kMs);
  for (int i = 0; i < 60; ++i) answer(5, 10 * kMs);
  (void)policy_.plan(group_);
  EXPECT_EQ(policy_.health(5).state, DeviceState::kGood);
  clock_.advance_ns(2 * kSecondNs);
  (void)policy_.plan(group_);
  EXPECT_EQ(policy_.health(5).state, DeviceState::kSuspect);
  for (int i = 0; i < 60; ++i) answer(5, kMs);
  (void)policy_.plan(group_);
  EXPECT_EQ(policy_.health(5).state, DeviceState::kGood);
}

TEST_F(Hedge, ThreeFailuresInARowMeanDownAndOneAnswerMeansUp) {
  for (int i = 0; i < 3; ++i) {
    policy_.started(0);
    policy_.finished(0, kMs, 0, HedgePolicy::Outcome::kFailed);
  }
  EXPECT_TRUE(policy_.is_down(0));
  clock_.advance_ns(kSecondNs);
  EXPECT_TRUE(has(policy_.plan(group_).first, 0));  // a probe
  EXPECT_FALSE(has(policy_.plan(group_).first, 0));
  answer(0, kMs);
  EXPECT_FALSE(policy_.is_down(0));
}

TEST_F(Hedge, LateHedgesAreTwoInAHundredReads) {
  int num_late = 0;
  for (int i = 0; i < 10'000; ++i) {
    (void)policy_.plan(group_);
    num_late += policy_.may_hedge_late();
  }
  EXPECT_NEAR(num_late, 200 + 16, 2);
}

TEST_F(Hedge, TheTimerIsThe95thPercentileOfReads) {
  for (int i = 1; i <= 1000; ++i) policy_.read_took(i * 10'000);  // up to 10 ms, uniform
  const double p95 = static_cast<double>(policy_.plan(group_).hedge_after_ns);
  EXPECT_GE(p95, 9.5e6);
  EXPECT_LE(p95, 9.5e6 * 1.1);  // a step of the histogram is 2^(1/8)
}

TEST_F(Hedge, PlainStorageAsksItsOneShard) {
  HedgePolicy plain(1, 1, {}, clock_);
  EXPECT_EQ(plain.plan({0}).first, std::vector<int>{0});
}

}  // namespace deepinfer
