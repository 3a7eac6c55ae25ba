// SPDX-License-Identifier: MIT
#include "kernels/norm/norm.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;
}

TEST(Norm, EqualsTheGoldenRows) {
  const auto x = units().raw<bf16>("norm.x"), w = units().raw<bf16>("norm.w"), y = units().raw<bf16>("norm.y");
  on_every_row<NormParams>(norm_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out(y.size());
    row.launch(context, {.x = {x.data(), {6, 96}}, .weight = {w.data(), 96}, .out = {out.data(), {6, 96}}});
    expect_near_exact(out, y);
  });
}

TEST(Norm, EveryRowEqualsTheReferenceOnOddSizes) {
  Rng rng(21);
  for (const int64_t size : {1, 3, 15, 16, 17, 64, 100, 512, 1283, 1344, 5120, 5440}) {
    const auto w = random_bf16(rng, size, 1.f);
    expect_rows_agree(norm_rows(), random_bf16(rng, 5 * size, 3.f), [&](auto& x) {
      return NormParams{.x = {x.data(), {5, size}}, .weight = {w.data(), size}, .out = {x.data(), {5, size}}};
    });
  }
}

// The epsilon keeps a row of zeros at zero.
TEST(Norm, ZerosStayZero) {
  std::vector<bf16> x(32), w(32, to_bf16(1.f)), out(32, to_bf16(5.f));
  on_every_row<NormParams>(norm_rows(), [&](const auto& row, const ExecutionContext& context) {
    row.launch(context, {.x = {x.data(), {1, 32}}, .weight = {w.data(), 32}, .out = {out.data(), {1, 32}}});
    EXPECT_EQ(out, x);
  });
}

}  // namespace deepinfer
