// SPDX-License-Identifier: MIT
#include "kernels/vision_cells/vision_cells.h"

namespace deepinfer {

void vision_cells_ref(const ExecutionContext& context, const VisionCellsParams& p) {
  const int64_t hidden = p.patches.size[1], area = p.ratio * p.ratio, columns = ceil_div(p.grid_columns, p.ratio);
  for_each_item(context, p.out.size[0], static_cast<double>(p.out.num_elements()), [&](int64_t cell, int) {
    for (int64_t y = 0; y < p.ratio; ++y)
      for (int64_t x = 0; x < p.ratio; ++x) {
        const int64_t row = cell / columns * p.ratio + y, column = cell % columns * p.ratio + x;
        const bool is_inside = row < p.grid_rows && column < p.grid_columns;
        const bf16* patch = is_inside ? p.patches.row(row * p.grid_columns + column) : nullptr;
        bf16* to = p.out.row(cell) + y * p.ratio + x;
        for (int64_t c = 0; c < hidden; ++c) to[c * area] = patch ? patch[c] : bf16{0};
      }
  });
}

}  // namespace deepinfer
