// SPDX-License-Identifier: MIT
#include "kernels/scatter_rows/scatter_rows.h"

#include "kernels/op_cases.h"

namespace deepinfer {

TEST(ScatterRows, WritesEachRowAtItsOffsetAndSkips) {
  const std::vector<uint8_t> rows = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> offsets = {5, kSkipRow, 0};
  testing_ops::on_every_row<ScatterRowsParams>(
      scatter_rows_rows(), [&](const auto& row, const ExecutionContext& context) {
        std::vector<uint8_t> out(8, 9);
        row.launch(context, {.rows = {rows.data(), {3, 2}}, .base = out.data(), .offset_bytes = {offsets.data(), {3}}});
        EXPECT_EQ(out, (std::vector<uint8_t>{5, 6, 9, 9, 9, 1, 2, 9}));
      });
}

}  // namespace deepinfer
