// SPDX-License-Identifier: MIT
// Canvas pixels to the rows the tower starts from, and the tower's patches to the cells the projector takes. Any
// thread.
#pragma once

#include <cstdint>

#include "tensor/bfloat16.h"
#include "tensor/view.h"
#include "vision/rgb_image.h"

namespace deepinfer {

// Row-major patches; columns (channel, y, x); value = bf16((v/255 - 0.5) / 0.5). out: [patches, 3 * patch_size^2].
void write_patches(const RgbImage& canvas, int64_t patch_size, View<bf16, dim::patches, dim::in> out);

// The grid of patches padded with zeros at the bottom and the right to whole ratio x ratio cells; each cell is one row
// with columns (channel, cell y, cell x). patches: [rows * columns, hidden]; out: [ceil(rows/ratio) *
// ceil(columns/ratio), hidden * ratio^2].
struct PatchGrid {
  int64_t rows = 0, columns = 0;
};
void write_cells(View<const bf16, dim::rows, dim::hidden> patches, PatchGrid grid, int64_t ratio,
                 View<bf16, dim::rows, dim::in> out);

}  // namespace deepinfer
