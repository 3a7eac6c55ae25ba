// SPDX-License-Identifier: MIT
#include "scheduler/calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"

namespace deepinfer {

// Logits that are too sure by a factor: acceptance follows sigmoid(logit / truth), so the fitted temperature is the
// truth.
TEST(Calibration, FindsTheTemperatureThatGeneratedTheLabels) {
  for (const float truth : {0.5f, 1.0f, 3.0f}) {
    Calibration calibration(1);
    Rng rng(1);
    for (int i = 0; i < 6000; ++i) {
      const float logit = 8 * (2 * rng.uniform() - 1);
      const bool accepted = rng.uniform() < 1 / (1 + std::exp(-logit / truth));
      calibration.add({&logit, 1}, 1, accepted);
    }
    EXPECT_NEAR(std::log2(calibration.temperatures()[0]), std::log2(truth), 0.4) << truth;
    EXPECT_LT(calibration.expected_calibration_error(0), 0.05f);
  }
}

TEST(Calibration, LearnsNothingAboutDraftsAfterARejection) {
  Calibration calibration(3);
  const std::vector<float> logits = {5.0f, 5.0f, 5.0f};
  for (int i = 0; i < 2000; ++i) calibration.add(logits, 3, 0);
  EXPECT_GT(calibration.temperatures()[0], 2.0f);
  EXPECT_EQ(calibration.temperatures()[1], 1.0f);
  EXPECT_EQ(calibration.temperatures()[2], 1.0f);
}

}  // namespace deepinfer
