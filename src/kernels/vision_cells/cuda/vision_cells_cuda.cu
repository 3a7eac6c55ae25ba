// SPDX-License-Identifier: MIT
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/vision_cells/vision_cells.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;

// A thread writes one value; neighbours write neighbours.
__global__ void cells_kernel(VisionCellsParams p) {
  const int64_t width = p.out.size[1], at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.out.size[0] * width) return;
  const int64_t cell = at / width, i = at % width, area = p.ratio * p.ratio, in_cell = i % area;
  const int64_t columns = (p.grid_columns + p.ratio - 1) / p.ratio;
  const int64_t row = cell / columns * p.ratio + in_cell / p.ratio,
                column = cell % columns * p.ratio + in_cell % p.ratio;
  const bool is_inside = row < p.grid_rows && column < p.grid_columns;
  p.out(cell, i) = is_inside ? p.patches(row * p.grid_columns + column, i / area) : bf16{0};
}

void vision_cells_cuda(const ExecutionContext& context, const VisionCellsParams& p) {
  if (p.out.num_elements() == 0) return;
  cells_kernel<<<num_blocks(p.out.num_elements(), kThreads), kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("vision_cells");
}

}  // namespace

extern const Launch<VisionCellsParams> kVisionCellsCuda = vision_cells_cuda;

}  // namespace deepinfer
