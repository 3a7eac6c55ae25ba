// SPDX-License-Identifier: MIT
#include "store/ttl.h"

#include <gtest/gtest.h>

namespace deepinfer {

TEST(Ttl, ASegmentLivesFromTheEndOfItsHour) {
  const TtlPolicy policy;
  const int64_t bucket = policy.bucket_of(1'000 * kHourNs + 5);
  EXPECT_EQ(bucket, 1000);
  EXPECT_EQ(policy.expiry_ns(TtlClass::kAgent, bucket), 1001 * kHourNs + 3 * kDayNs);
  EXPECT_EQ(policy.expiry_ns(TtlClass::kChat, bucket), 1001 * kHourNs + 7 * kDayNs);
}

TEST(Ttl, ClocksMayDifferByAMinute) {
  const TtlPolicy policy;
  const int64_t expiry = policy.expiry_ns(TtlClass::kAgent, 0);
  EXPECT_FALSE(policy.is_expired(TtlClass::kAgent, 0, expiry + 60 * kSecondNs));
  EXPECT_TRUE(policy.is_expired(TtlClass::kAgent, 0, expiry + 60 * kSecondNs + 1));
}

TEST(Ttl, RenewalIsForTheLastQuarter) {
  const TtlPolicy policy;
  const int64_t expiry = policy.expiry_ns(TtlClass::kAgent, 0);
  EXPECT_FALSE(policy.wants_renewal(TtlClass::kAgent, 0, expiry - 18 * kHourNs));  // a quarter of 72 hours
  EXPECT_TRUE(policy.wants_renewal(TtlClass::kAgent, 0, expiry - 18 * kHourNs + 1));
}

// A chat segment two days old (2/7 of its time) outlives an agent segment one day old (1/3).
TEST(Ttl, OverFullTakesTheOldestByShareOfItsTime) {
  const TtlPolicy policy;
  const int64_t now = 100 * kDayNs;
  const std::vector<SegmentAge> segments = {{TtlClass::kChat, policy.bucket_of(now - 2 * kDayNs)},
                                            {TtlClass::kAgent, policy.bucket_of(now - kDayNs)},
                                            {TtlClass::kAgent, policy.bucket_of(now)}};
  EXPECT_EQ(oldest_segment(segments, policy, now), 1u);
  EXPECT_EQ(oldest_segment({}, policy, now), std::nullopt);
}

TEST(Ttl, EffectiveShareFallsAtOnceAndGrowsWithTheData) {
  EffectiveTtl effective;
  EXPECT_EQ(effective.share(), 1);
  effective.dropped_early(0.4);
  EXPECT_EQ(effective.share(), 0.4);
  effective.observe_oldest(0.2);
  EXPECT_EQ(effective.share(), 0.4);
  effective.observe_oldest(0.6);
  EXPECT_EQ(effective.share(), 0.6);
}

}  // namespace deepinfer
