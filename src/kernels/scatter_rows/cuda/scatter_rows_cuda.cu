// SPDX-License-Identifier: MIT
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/copy_bytes.cuh"
#include "kernels/scatter_rows/scatter_rows.h"

namespace deepinfer {
namespace {

__global__ void scatter_kernel(ScatterRowsParams p) {
  begin_overlapped();
  const int64_t r = blockIdx.x;
  if (p.offset_bytes(r) != kSkipRow) copy_bytes(p.base + p.offset_bytes(r), p.rows.row(r), p.rows.size[1]);
}

void scatter_rows_cuda(const ExecutionContext& context, const ScatterRowsParams& p) {
  if (p.rows.size[0] == 0) return;
  launch_overlapped(context, {num_blocks(p.rows.size[0], 1), 128}, scatter_kernel, p);
  context.device->launched("scatter_rows");
}

}  // namespace

extern const Launch<ScatterRowsParams> kScatterRowsCuda = scatter_rows_cuda;

}  // namespace deepinfer
