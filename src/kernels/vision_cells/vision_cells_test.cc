// SPDX-License-Identifier: MIT
#include "kernels/vision_cells/vision_cells.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

// A grid of 2 x 3 patches of two channels, in cells of 2 x 2: the second cell lacks its right column. Patch p has the
// channels 10 p and 10 p + 1.
TEST(VisionCells, PutsTheChannelOutsideAndPadsWithZeros) {
  std::vector<bf16> patches;
  for (int p = 0; p < 6; ++p)
    for (int c = 0; c < 2; ++c) patches.push_back(to_bf16(static_cast<float>(10 * p + c)));
  const std::vector<float> expected = {0, 10, 30, 40, 1, 11, 31, 41, 20, 0, 50, 0, 21, 0, 51, 0};
  on_every_row<VisionCellsParams>(vision_cells_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out(16, to_bf16(7.f));
    row.launch(context, {.patches = {patches.data(), {6, 2}},
                         .grid_rows = 2,
                         .grid_columns = 3,
                         .ratio = 2,
                         .out = {out.data(), {2, 8}}});
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(to_float(out[i]), expected[i]) << i;
  });
}

TEST(VisionCells, EveryRowEqualsTheReferenceOnOddGrids) {
  Rng rng(9);
  for (const auto& [rows, columns, ratio] : {std::array<int64_t, 3>{1, 1, 3}, {7, 8, 3}, {9, 6, 3}, {5, 5, 1}}) {
    const std::vector<bf16> patches = random_bf16(rng, rows * columns * 20, 2.f);
    const int64_t cells = ceil_div(rows, ratio) * ceil_div(columns, ratio), width = 20 * ratio * ratio;
    expect_rows_agree(vision_cells_rows(), std::vector<bf16>(static_cast<size_t>(cells * width)), [&](auto& out) {
      return VisionCellsParams{.patches = {patches.data(), {rows * columns, 20}},
                               .grid_rows = rows,
                               .grid_columns = columns,
                               .ratio = ratio,
                               .out = {out.data(), {cells, width}}};
    });
  }
}

TEST(VisionCells, RefusesAnOutputOfAnotherSize) {
  std::vector<bf16> values(64);
  VisionCellsParams p{.patches = {values.data(), {6, 2}},
                      .grid_rows = 2,
                      .grid_columns = 3,
                      .ratio = 2,
                      .out = {values.data(), {1, 8}}};
  EXPECT_FALSE(check(p).ok());
  p.out = {values.data(), {2, 8}};
  EXPECT_TRUE(check(p).ok());
  p.ratio = 0;
  EXPECT_FALSE(check(p).ok());
}

}  // namespace
}  // namespace deepinfer
