// SPDX-License-Identifier: MIT
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/quantize/cuda/small_formats.cuh"

namespace deepinfer {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kSeveral = 4;

// 32 columns of a row, one a lane. Warps have kEach of them one after another, those of a row first.
struct Piece {
  int64_t row, column;
  bf16 value;  // zero behind the row
};
template <int kEach, typename Params, typename Body>
__device__ void for_each_piece(const Params& p, const Body& body) {
  const uint32_t size = static_cast<uint32_t>(p.x.size[1]), pieces = (size + 31) / 32;
  const uint32_t first = (blockIdx.x * kWarps + threadIdx.x / 32) * kEach;
  Piece piece[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    piece[i] = {(first + i) / pieces, (first + i) % pieces * 32 + threadIdx.x % 32, bf16{}};
    if (piece[i].row < p.x.size[0] && piece[i].column < size) piece[i].value = p.x(piece[i].row, piece[i].column);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (piece[i].row < p.x.size[0]) body(piece[i]);
}

template <int kEach>
__global__ void pack_kernel(PackRowsParams p) {
  begin_overlapped();
  const int64_t size = p.x.size[1];
  const bool is_fp8 = p.format == RowFormat::kFp8Block32;
  const int group = p.format == RowFormat::kFp4Group16 ? 16 : 32;
  for_each_piece<kEach>(p, [&](const Piece& piece) {
    const int64_t column = piece.column, offset = p.offset_bytes.data ? p.offset_bytes(piece.row) : piece.row * p.stride_bytes;
    if (offset == kSkipRow) return;
    uint8_t* out = p.base + offset;
    if (p.format == RowFormat::kBf16) {
      if (column < size) out[2 * column] = static_cast<uint8_t>(piece.value.bits), out[2 * column + 1] = piece.value.bits >> 8;
      return;
    }
    const Coded c = encode(p.format, to_float(piece.value));
    const unsigned above = __shfl_down_sync(0xFFFFFFFFu, c.code, 1);
    if (column >= size) return;
    if (is_fp8) out[column] = c.code;
    else if (column % 2 == 0) out[column / 2] = static_cast<uint8_t>(c.code | above << 4);
    if (column % group == 0) out[(is_fp8 ? size : size / 2) + column / group] = c.scale;
  });
}

__global__ void unpack_kernel(UnpackRowsParams p) {
  begin_overlapped();
  const int64_t r = blockIdx.x, size = p.out.size[1];
  const uint8_t* packed = p.packed.row(r);
  for (int64_t i = threadIdx.x; i < size; i += kThreads) p.out(r, i) = unpack_column(p.format, packed, size, i);
}

template <int kEach>
__global__ void round_kernel(RoundRowsParams p) {
  begin_overlapped();
  for_each_piece<kEach>(p, [&](const Piece& piece) {
    const bf16 rounded =
        p.format == RowFormat::kBf16 ? piece.value : decode(p.format, encode(p.format, to_float(piece.value)));
    if (piece.column < p.x.size[1]) p.out(piece.row, piece.column) = rounded;
  });
}

// Several pieces a warp where there are many: their loads overlap.
template <typename Params>
void launch_pieces(const ExecutionContext& context, void (*one)(Params), void (*several)(Params), const Params& p) {
  constexpr int64_t kMany = 32 << 10;
  const int64_t pieces = p.x.size[0] * num_blocks(p.x.size[1], 32);
  if (pieces < kMany) launch_overlapped(context, {num_blocks(pieces, kWarps), kThreads}, one, p);
  else launch_overlapped(context, {num_blocks(pieces, kWarps * kSeveral), kThreads}, several, p);
}

void pack_rows_cuda(const ExecutionContext& context, const PackRowsParams& p) {
  if (p.x.num_elements() == 0) return;
  launch_pieces(context, pack_kernel<1>, pack_kernel<kSeveral>, p);
  context.device->launched("pack_rows");
}

void unpack_rows_cuda(const ExecutionContext& context, const UnpackRowsParams& p) {
  if (p.out.num_elements() == 0) return;
  launch_overlapped(context, {num_blocks(p.out.size[0], 1), kThreads}, unpack_kernel, p);
  context.device->launched("unpack_rows");
}

void round_rows_cuda(const ExecutionContext& context, const RoundRowsParams& p) {
  if (p.x.num_elements() == 0) return;
  launch_pieces(context, round_kernel<1>, round_kernel<kSeveral>, p);
  context.device->launched("round_rows");
}

}  // namespace

extern const Launch<PackRowsParams> kPackRowsCuda = pack_rows_cuda;
extern const Launch<UnpackRowsParams> kUnpackRowsCuda = unpack_rows_cuda;
extern const Launch<RoundRowsParams> kRoundRowsCuda = round_rows_cuda;

}  // namespace deepinfer
