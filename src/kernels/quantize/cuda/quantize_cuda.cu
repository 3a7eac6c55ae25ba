// SPDX-License-Identifier: MIT
#include "kernels/linear/cuda/begin_overlapped.cuh"
#include "kernels/quantize/cuda/small_formats.cuh"

namespace deepinfer {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// A warp packs 32 columns of one row; blockIdx.x is the row, the warps of blockIdx.y share its columns.
__global__ void pack_kernel(PackRowsParams p) {
  begin_overlapped();
  const int64_t r = blockIdx.x, size = p.x.size[1];
  const int64_t offset = p.offset_bytes.data ? p.offset_bytes(r) : r * p.stride_bytes;
  const int64_t column = (int64_t{blockIdx.y} * kWarps + threadIdx.x / 32) * 32 + threadIdx.x % 32;
  if (offset == kSkipRow || column - threadIdx.x % 32 >= size) return;
  uint8_t* out = p.base + offset;
  const bf16 value = column < size ? p.x(r, column) : bf16{};
  if (p.format == RowFormat::kBf16) {
    if (column < size) out[2 * column] = static_cast<uint8_t>(value.bits), out[2 * column + 1] = value.bits >> 8;
    return;
  }
  const Coded c = encode(p.format, to_float(value));
  const bool is_fp8 = p.format == RowFormat::kFp8Block32;
  const int group = p.format == RowFormat::kFp4Group16 ? 16 : 32;
  const unsigned above = __shfl_down_sync(0xFFFFFFFFu, c.code, 1);
  if (column >= size) return;
  if (is_fp8) out[column] = c.code;
  else if (column % 2 == 0) out[column / 2] = static_cast<uint8_t>(c.code | above << 4);
  if (column % group == 0) out[(is_fp8 ? size : size / 2) + column / group] = c.scale;
}

__global__ void unpack_kernel(UnpackRowsParams p) {
  begin_overlapped();
  const int64_t r = blockIdx.x, size = p.out.size[1];
  const uint8_t* packed = p.packed.row(r);
  for (int64_t i = threadIdx.x; i < size; i += kThreads) p.out(r, i) = unpack_column(p.format, packed, size, i);
}

__global__ void round_kernel(RoundRowsParams p) {
  begin_overlapped();
  const int64_t r = blockIdx.x, size = p.x.size[1];
  const int64_t column = (int64_t{blockIdx.y} * kWarps + threadIdx.x / 32) * 32 + threadIdx.x % 32;
  if (column - threadIdx.x % 32 >= size) return;
  const bf16 value = column < size ? p.x(r, column) : bf16{};
  const bf16 rounded = p.format == RowFormat::kBf16 ? value : decode(p.format, encode(p.format, to_float(value)));
  if (column < size) p.out(r, column) = rounded;
}

dim3 column_grid(int64_t rows, int64_t columns) {
  return dim3(num_blocks(rows, 1), num_blocks(columns, kThreads));
}

void pack_rows_cuda(const ExecutionContext& context, const PackRowsParams& p) {
  if (p.x.num_elements() == 0) return;
  launch_overlapped(context, {column_grid(p.x.size[0], p.x.size[1]), kThreads}, pack_kernel, p);
  context.device->launched("pack_rows");
}

void unpack_rows_cuda(const ExecutionContext& context, const UnpackRowsParams& p) {
  if (p.out.num_elements() == 0) return;
  launch_overlapped(context, {num_blocks(p.out.size[0], 1), kThreads}, unpack_kernel, p);
  context.device->launched("unpack_rows");
}

void round_rows_cuda(const ExecutionContext& context, const RoundRowsParams& p) {
  if (p.x.num_elements() == 0) return;
  launch_overlapped(context, {column_grid(p.x.size[0], p.x.size[1]), kThreads}, round_kernel, p);
  context.device->launched("round_rows");
}

}  // namespace

extern const Launch<PackRowsParams> kPackRowsCuda = pack_rows_cuda;
extern const Launch<UnpackRowsParams> kUnpackRowsCuda = unpack_rows_cuda;
extern const Launch<RoundRowsParams> kRoundRowsCuda = round_rows_cuda;

}  // namespace deepinfer
