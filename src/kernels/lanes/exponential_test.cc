// SPDX-License-Identifier: MIT
#include "kernels/lanes/exponential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace deepinfer {

TEST(Exponential, IsWithinTwoUlpOfTheExactValue) {
  for (float x = -87.3f; x < 88.7f; x += 0.00731f) {
    const double exact = std::exp(static_cast<double>(x));
    const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
    EXPECT_NEAR(exp_in_lanes(x), exact, 2 * ulp) << x;
  }
}

TEST(Exponential, EndsInZeroInfinityAndNan) {
  EXPECT_EQ(exp_in_lanes(0.f), 1.f);
  EXPECT_EQ(exp_in_lanes(-std::numeric_limits<float>::infinity()), 0.f);
  EXPECT_EQ(exp_in_lanes(-1e30f), 0.f);
  EXPECT_TRUE(std::isinf(exp_in_lanes(1e30f)));
  EXPECT_TRUE(std::isnan(exp_in_lanes(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_NEAR(exp_in_lanes(-95.f) / std::exp(-95.0), 1.0, 1e-3);  // a denormal
  EXPECT_EQ(sigmoid_in_lanes(-1000.f), 0.f);
  EXPECT_EQ(silu_in_lanes(-1000.f), 0.f);
}

}  // namespace deepinfer
