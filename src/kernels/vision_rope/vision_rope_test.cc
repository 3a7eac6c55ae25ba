// SPDX-License-Identifier: MIT
#include "kernels/vision_rope/vision_rope.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

// Row 2, column 3 of a grid of 5 columns with four pairs: f = 1, 10000^(-1/2) = 0.01.
TEST(VisionRope, TurnsFirstHalfByRowAndSecondByColumn) {
  std::vector<float> cos(20 * 4), sin(20 * 4);
  vision_rope_angles(4, 5, 10000, {cos.data(), {20, 4}}, {sin.data(), {20, 4}});
  const size_t at = 13 * 4;
  EXPECT_NEAR(cos[at], std::cos(2.0), 1e-6);
  EXPECT_NEAR(sin[at + 1], std::sin(0.02), 1e-8);
  EXPECT_NEAR(cos[at + 2], std::cos(3.0), 1e-6);
  EXPECT_NEAR(sin[at + 3], std::sin(0.03), 1e-8);
}

TEST(VisionRope, PairsLanesHalfAHeadApart) {
  std::vector<bf16> x;
  for (const float v : {1.f, 2.f, 3.f, 4.f}) x.push_back(to_bf16(v));
  const std::vector<float> cos = {0.f, 1.f}, sin = {1.f, 0.f};
  on_every_row<VisionRopeParams>(vision_rope_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> y = x;
    row.launch(context, {.x = {y.data(), {1, 1, 4}}, .cos = {cos.data(), {1, 2}}, .sin = {sin.data(), {1, 2}}});
    EXPECT_EQ(to_float(y[0]), -3.f);
    EXPECT_EQ(to_float(y[1]), 2.f);
    EXPECT_EQ(to_float(y[2]), 1.f);
    EXPECT_EQ(to_float(y[3]), 4.f);
  });
}

TEST(VisionRope, EveryRowEqualsTheReference) {
  Rng rng(5);
  std::vector<float> cos(300 * 8), sin(300 * 8);
  vision_rope_angles(20, 15, 10000, {cos.data(), {300, 8}}, {sin.data(), {300, 8}});
  expect_rows_agree(vision_rope_rows(), random_bf16(rng, 300 * 3 * 16 * 2, 2.f), [&](auto& x) {
    return VisionRopeParams{
        .x = {x.data(), {300, 3, 16}, {96, 16, 1}}, .cos = {cos.data(), {300, 8}}, .sin = {sin.data(), {300, 8}}};
  });
}

}  // namespace
}  // namespace deepinfer
