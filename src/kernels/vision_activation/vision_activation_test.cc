// SPDX-License-Identifier: MIT
// Expected values: the functions in double precision, rounded to bf16.
#include "kernels/vision_activation/vision_activation.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

std::vector<bf16> samples() {
  std::vector<bf16> values;
  for (int i = -4000; i <= 4000; ++i) values.push_back(to_bf16(static_cast<float>(i) / 400.f));
  return values;
}

TEST(VisionActivation, GatedSiluRoundsTwice) {
  const std::vector<bf16> gate = samples(), up(gate.size(), to_bf16(1.375f));
  const int64_t n = static_cast<int64_t>(gate.size());
  on_every_row<GatedSiluParams>(gated_silu_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out(gate.size());
    row.launch(context, {.gate = {gate.data(), {1, n}}, .up = {up.data(), {1, n}}, .out = {out.data(), {1, n}}});
    std::vector<bf16> want;
    for (const bf16 g : gate) {
      const double x = double{to_float(g)};
      want.push_back(to_bf16(round_to_bf16(static_cast<float>(x / (1 + std::exp(-x)))) * 1.375f));
    }
    expect_near_exact(out, want);
  });
}

TEST(VisionActivation, GeluIsTheExactOne) {
  const std::vector<bf16> x = samples();
  on_every_row<GeluParams>(gelu_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> y = x;
    row.launch(context, {.x = {y.data(), {1, static_cast<int64_t>(x.size())}}});
    // Below -4 the sum 1 + erf has lost its digits in fp32, in the reference too.
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = double{to_float(x[i])}, want = 0.5 * v * std::erfc(-v * std::sqrt(0.5));
      EXPECT_NEAR(double{to_float(y[i])}, want, std::max(std::fabs(want) / 256, 1e-6)) << v;
    }
  });
}

TEST(VisionActivation, ResidualRoundsOnce) {
  on_every_row<ResidualParams>(residual_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> x = {to_bf16(1.f), to_bf16(256.f)};
    const std::vector<bf16> y = {to_bf16(0.5f), to_bf16(1.f)};
    row.launch(context, {.x = {x.data(), {1, 2}}, .y = {y.data(), {1, 2}}});
    EXPECT_EQ(to_float(x[0]), 1.5f);
    EXPECT_EQ(to_float(x[1]), 256.f);  // 257 is half way between 256 and 258: to the even one
  });
}

TEST(VisionActivation, RowsOfStridedInputsAreIndependent) {
  Rng rng(9);
  const std::vector<bf16> x = random_bf16(rng, 40 * 14, 3.f);
  expect_rows_agree(gated_silu_rows(), std::vector<bf16>(40 * 7), [&](auto& out) {
    return GatedSiluParams{
        .gate = {x.data(), {40, 7}, {14, 1}}, .up = {x.data() + 7, {40, 7}, {14, 1}}, .out = {out.data(), {40, 7}}};
  });
}

}  // namespace
}  // namespace deepinfer
