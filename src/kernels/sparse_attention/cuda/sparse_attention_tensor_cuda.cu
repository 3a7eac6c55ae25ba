// SPDX-License-Identifier: MIT
// Attention on tensor cores (wgmma), 64 heads of one token at a time by one block, which walks over the tokens. Two
// warpgroups unpack the token's entries into shared memory, 64 at a time, once for keys and values
// (attention_filler.cuh); two multiply: each scores every second tile and has half of the output columns of both
// (attention_multiplier.cuh). The tiles, their order and the running maximum are those of the reference, so only the
// order inside sums differs, and a token's result depends on nothing but the token.
#include <algorithm>
#include <bit>
#include <initializer_list>

#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/sparse_attention/cuda/attention_filler.cuh"
#include "kernels/sparse_attention/cuda/attention_multiplier.cuh"

namespace deepinfer {

extern const Launch<SparseAttentionParams> kSparseAttentionCuda;

namespace {
using namespace attention;

__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ SparseAttentionParams p, int num_items) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ __align__(1024) uint8_t shared[];
  Shared& s = *reinterpret_cast<Shared*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * kHalves; ++i)
      init_barrier(s.full[i / 2][i % 2], kProducers / 32), init_barrier(s.empty[i / 2][i % 2], 8);
    init_barrier(s.q_full, kProducers / 32), init_barrier(s.q_empty, 8);
    publish_barriers();
  }
  if (threadIdx.x < kRowsEach) s.no_rows[threadIdx.x] = reinterpret_cast<const uint8_t*>(zero_row);
  __syncthreads();
  begin_overlapped();
  const int group = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / kGroupThreads, 0),
            thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  if (group < 2) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    if (group == 0) multiply_tiles<0>(p, s, num_items, thread);
    else multiply_tiles<1>(p, s, num_items, thread);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    fill_tiles(p, s, num_items, static_cast<int>(threadIdx.x) - 2 * kGroupThreads);
  }
#endif
}

bool is_aligned(const void* p, std::initializer_list<int64_t> strides, int64_t to) {
  bool aligned = reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(to) == 0;
  for (const int64_t stride : strides) aligned &= stride % to == 0;
  return aligned;
}

// What the tiles are made for: the released widths. Everything else is left to the exact kernel.
bool takes(const SparseAttentionParams& p) {
  const auto is_packed = [](RowFormat f) { return f == RowFormat::kFp8Block32 || f == RowFormat::kFp4Group16; };
  const int64_t selected = p.selected.data ? p.selected.size[1] : 0;  // a tile has one format
  const bool is_tiled = p.window % kTileEntries == 0 && (p.block_rows == 0 || selected % kTileEntries == 0);
  const bool is_paged = !p.selected.data || std::has_single_bit(static_cast<uint32_t>(p.global.rows_per_block));
  return is_tiled && is_paged && p.q.size[2] == kTileColumns && p.q.size[1] >= kHeads / 2 &&
         num_entries(p) <= kEntriesMax && is_packed(p.window_format) &&
         (!p.selected.data || is_packed(p.global_format)) &&
         is_aligned(p.q.data, {2 * p.q.stride[0], 2 * p.q.stride[1]}, 16) &&
         is_aligned(p.out.data, {2 * p.out.stride[0], 2 * p.out.stride[1]}, 16) &&
         is_aligned(p.fresh.data, {p.fresh.stride[0]}, 16) &&
         is_aligned(p.ring.base, {p.ring.lane_stride_bytes, p.ring.row_stride_bytes}, 16) &&
         is_aligned(p.global.base, {p.global.block_stride_bytes, p.global.row_stride_bytes}, 16);
}

void sparse_attention_tensor_cuda(const ExecutionContext& context, const SparseAttentionParams& p) {
  if (p.out.num_elements() == 0) return;
  if (!kHasWarpgroups || !takes(p)) return kSparseAttentionCuda(context, p);
  const int64_t num_items = p.q.size[0] * ((p.q.size[1] + kHeads - 1) / kHeads);
  allow_shared_memory(attention_kernel, sizeof(Shared));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(num_items, multiprocessor_count()));
  launch_overlapped(context, {blocks, kThreads, sizeof(Shared)}, attention_kernel, p, static_cast<int>(num_items));
  context.device->launched("sparse_attention");
}

}  // namespace

extern const Launch<SparseAttentionParams> kSparseAttentionTensorCuda = sparse_attention_tensor_cuda;

}  // namespace deepinfer
