// SPDX-License-Identifier: MIT
#include "kernels/vision_cells/vision_cells.h"

#include "kernels/view_check.h"

namespace deepinfer {

void vision_cells_ref(const ExecutionContext& context, const VisionCellsParams& params);
extern const Launch<VisionCellsParams> kVisionCellsCuda;

Status check(const VisionCellsParams& p) {
  TRY(check_rows("patches", p.patches));
  TRY(check_rows("out", p.out));
  if (p.grid_rows < 0 || p.grid_columns < 0 || p.ratio < 1)
    return invalid_argument("grid: " + std::to_string(p.grid_rows) + " x " + std::to_string(p.grid_columns) +
                            " patches in cells of " + std::to_string(p.ratio));
  TRY(check_shape("patches", p.patches, {p.grid_rows * p.grid_columns, p.patches.size[1]}));
  return check_shape(
      "out", p.out,
      {ceil_div(p.grid_rows, p.ratio) * ceil_div(p.grid_columns, p.ratio), p.patches.size[1] * p.ratio * p.ratio});
}

Cost estimate(const VisionCellsParams& p) {
  return {.bytes_read = 2 * static_cast<double>(p.patches.num_elements()),
          .bytes_written = 2 * static_cast<double>(p.out.num_elements())};
}

KernelRows<VisionCellsParams> vision_cells_rows() {
  static const KernelRow<VisionCellsParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", vision_cells_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kVisionCellsCuda}};
  return kRows;
}

}  // namespace deepinfer
