// SPDX-License-Identifier: MIT
#include "kernels/gather_rows/gather_rows.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;
}

TEST(GatherRows, TakesRowsInTheOrderOfTheirSources) {
  Rng rng(7);
  for (const int64_t columns : {1, 66, 528, 4096}) {
    const auto rows = random_bytes(rng, 9 * columns, 0, 256);
    const std::vector<int32_t> source = {8, 0, 3, 3};
    on_every_row<GatherRowsParams>(gather_rows_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<uint8_t> out(static_cast<size_t>(4 * columns));
      row.launch(
          context,
          {.rows = {rows.data(), {9, columns}}, .source = {source.data(), {4}}, .out = {out.data(), {4, columns}}});
      for (size_t r = 0; r < 4; ++r)
        EXPECT_EQ(std::memcmp(&out[r * static_cast<size_t>(columns)],
                              &rows[static_cast<size_t>(source[r]) * static_cast<size_t>(columns)],
                              static_cast<size_t>(columns)),
                  0);
    });
  }
}

TEST(GatherRows, RowsMoveUpInPlaceAndMayBeStrided) {
  Rng rng(8);
  const int64_t columns = 40, stride = 48;
  const auto before = random_bytes(rng, 700 * stride, 0, 256);
  std::vector<int32_t> source;
  for (int32_t r = 0; r < 700; r += r % 3 + 1) source.push_back(r);
  const int64_t num = static_cast<int64_t>(source.size());
  on_every_row<GatherRowsParams>(gather_rows_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<uint8_t> rows = before;
    const GatherRowsParams p{.rows = {rows.data(), {700, columns}, {stride, 1}},
                             .source = {source.data(), {num}},
                             .out = {rows.data(), {num, columns}, {stride, 1}}};
    ASSERT_TRUE(check(p).ok() && check_values(p).ok());
    row.launch(context, p);
    for (size_t r = 0; r < source.size(); ++r)
      EXPECT_EQ(std::memcmp(&rows[r * 48], &before[static_cast<size_t>(source[r]) * 48], 40), 0) << r;
  });
}

TEST(GatherRows, RefusesSourcesThatAreNoRowsOrMoveDownInPlace) {
  std::vector<uint8_t> rows(8);
  const std::vector<int32_t> outside = {2}, down = {1, 0};
  EXPECT_EQ(check_values(GatherRowsParams{.rows = {rows.data(), {2, 4}},
                                          .source = {outside.data(), {1}},
                                          .out = {rows.data() + 4, {1, 4}}})
                .message(),
            "source(0) is 2, expected a row of 2");
  EXPECT_EQ(check_values(GatherRowsParams{
                             .rows = {rows.data(), {2, 4}}, .source = {down.data(), {2}}, .out = {rows.data(), {2, 4}}})
                .message(),
            "source(1) is 0: in place, rows only move up");
}

}  // namespace deepinfer
