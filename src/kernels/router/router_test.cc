// SPDX-License-Identifier: MIT
#include "kernels/router/router.h"

#include "kernels/linear/linear.h"
#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;
}

TEST(Router, ChoicesAndWeightsEqualTheGoldenOnes) {
  const auto x = units().raw<bf16>("gate.x"), w = units().raw<bf16>("gate.w");
  const auto bias = units().raw<float>("gate.bias"), image_bias = units().raw<float>("gate.bias_vl"),
             weights = units().raw<float>("gate.weights");
  const auto mask = units().raw<uint8_t>("gate.image_mask");
  const auto indices = units().raw<int32_t>("gate.indices");
  std::vector<float> logits(8 * 384);
  on_every_row<LinearParams>(linear_rows(), [&](const auto& linear, const ExecutionContext& context) {
    linear.launch(
        context,
        {.x = {x.data(), {8, 64}}, .weight = Bf16Matrix{w.data(), 384, 64}, .out_f32 = {logits.data(), {8, 384}}});
    on_every_row<RouterParams>(router_rows(), [&](const auto& row, const ExecutionContext& row_context) {
      std::vector<int32_t> expert(48);
      std::vector<float> weight(48);
      row.launch(row_context, {.logits = {logits.data(), {8, 384}},
                               .bias = {bias.data(), 384},
                               .image_bias = {image_bias.data(), 384},
                               .is_image = {mask.data(), {8}},
                               .routed_scale = 1.5f,
                               .expert = {expert.data(), {8, 6}},
                               .weight = {weight.data(), {8, 6}}});
      EXPECT_EQ(expert, indices);
      expect_close(weight, weights, 1e-6f);
    });
  });
}

TEST(Router, TiesGoToTheLowestExpert) {
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  for (const RouterScore score : {RouterScore::kSqrtSoftplus, RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    on_every_row<RouterParams>(router_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<int32_t> expert(2);
      std::vector<float> weight(2);
      row.launch(context, {.logits = {logits.data(), {1, 5}},
                           .score = score,
                           .expert = {expert.data(), {1, 2}},
                           .weight = {weight.data(), {1, 2}}});
      EXPECT_EQ(expert, (std::vector<int32_t>{1, 2}));
      EXPECT_FLOAT_EQ(weight[0], 0.5f);
    });
  }
}

TEST(Router, SoftmaxAndSigmoidScoresAreTheirFormulas) {
  const std::vector<float> logits = {0.3f, -1.f, 2.f};
  double total = 0;
  for (const float z : logits) total += std::exp(double(z));
  on_every_row<RouterParams>(router_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<int32_t> expert(3);
    std::vector<float> weight(3);
    RouterParams p{.logits = {logits.data(), {1, 3}},
                   .score = RouterScore::kSoftmax,
                   .normalize = false,
                   .expert = {expert.data(), {1, 3}},
                   .weight = {weight.data(), {1, 3}}};
    row.launch(context, p);
    EXPECT_NEAR(weight[0], std::exp(2.0) / total, 1e-6);
    p.score = RouterScore::kSigmoid;
    p.temperature = 2;
    row.launch(context, p);
    EXPECT_NEAR(weight[2], 1 / (1 + std::exp(0.5)), 1e-6);
  });
}

}  // namespace deepinfer
