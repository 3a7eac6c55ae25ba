// SPDX-License-Identifier: MIT
#include "kernels/gather_rows/gather_rows.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/copy_bytes.cuh"

namespace deepinfer {
namespace {

__global__ void gather_kernel(GatherRowsParams p) {
  begin_overlapped();
  const int64_t r = blockIdx.x;
  copy_bytes(p.out.row(r), p.rows.row(p.source(r)), p.out.size[1]);
}

__global__ void copy_kernel(View<const uint8_t, dim::rows, dim::columns> from,
                            View<uint8_t, dim::rows, dim::columns> to) {
  begin_overlapped();
  copy_bytes(to.row(blockIdx.x), from.row(blockIdx.x), to.size[1]);
}

// In place, rows would overtake each other: they go through working memory.
void gather_rows_cuda(const ExecutionContext& context, const GatherRowsParams& p) {
  if (p.out.num_elements() == 0) return;
  const Scratch::Frame frame(*context.scratch);
  const unsigned blocks = num_blocks(p.out.size[0], 1);
  GatherRowsParams first = p;
  const bool is_in_place = p.out.data == p.rows.data;
  if (is_in_place) first.out = {context.scratch->take<uint8_t>(p.out.num_elements()), p.out.size};
  launch_overlapped(context, {blocks, 256}, gather_kernel, first);
  if (is_in_place) launch_overlapped(context, {blocks, 256}, copy_kernel, first.out, p.out);
  context.device->launched("gather_rows");
}

}  // namespace

extern const Launch<GatherRowsParams> kGatherRowsCuda = gather_rows_cuda;

}  // namespace deepinfer
