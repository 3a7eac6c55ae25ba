// SPDX-License-Identifier: MIT
// From the vision tower's patches to the cells that the projector takes (dspark-vision.md 3.5): the grid is padded with
// zeros at the bottom and the right to whole ratio x ratio cells; a cell is one row with columns (channel, cell y, cell
// x). A copy: nothing is rounded.
#pragma once

#include "kernels/op.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

struct VisionCellsParams {
  View<const bf16, dim::rows, dim::hidden> patches;  // [grid_rows * grid_columns, hidden], reading order
  int64_t grid_rows = 0, grid_columns = 0, ratio = 1;
  View<bf16, dim::rows, dim::in> out;  // [ceil(grid_rows/ratio) * ceil(grid_columns/ratio), hidden * ratio^2]
};
Status check(const VisionCellsParams& params);
Cost estimate(const VisionCellsParams& params);
KernelRows<VisionCellsParams> vision_cells_rows();

}  // namespace deepinfer
